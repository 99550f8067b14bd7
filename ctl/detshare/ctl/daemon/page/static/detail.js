// SPDX-License-Identifier: Apache-2.0
// All that is known of one program, and what may be asked for it.

import { $, el, keyed, say, set } from "./dom.js";
import { against, plot } from "./plot.js";
import { cells, clock, memory, microseconds, percent, seconds } from "./words.js";

const CLASSES = ["high", "normal", "low", "idle"];
const FACTS = ["STATE", "CLASS", "TURN", "GPU", "SLICE", "LEVEL", "USER", "CONTAINER"];

const lines = (parent, texts) => keyed(parent, texts.map((text, index) => ({ text, index })), (each) => each.index,
  () => el("li"), (node, each) => say(node, each.text));

export class Detail {
  // act: (verb, pid, arguments) -> asks the daemon
  constructor(store, act) {
    this.store = store;
    this.act = act;
    this.body = $("detail-body");
    this.#build();
  }

  #build() {
    const node = (name, ...rest) => (this[name] = el(...rest));
    const button = (text, run) => el("button", { type: "button", onclick: run }, text);
    this.classes = CLASSES.map((name) => {
      const made = button(name, () => this.act("set-priority", this.pid, { class: name }));
      made.dataset.verb = "set-priority";
      made.dataset.class = name;
      return made;
    });
    this.weight = el("input", { id: "weight", type: "number", min: 1, max: 1000, step: 1, inputmode: "numeric", required: true });
    this.limit = el("input", { id: "limit", type: "text", placeholder: "8G, 512M, max", autocomplete: "off", spellcheck: "false", required: true });
    const form = (label, input, verb, read) => el("form", { class: "set", "data-verb": verb, onsubmit: (event) => {
      event.preventDefault();
      this.act(verb, this.pid, read(input.value.trim()));
    } }, el("label", { for: input.id }, label), input, el("button", { type: "submit" }, "Set"));
    this.pause = button("Pause", () => this.act(this.paused ? "resume" : "pause", this.pid, {}));
    this.pause.dataset.verb = "pause";
    this.park = button("Park", () => this.act(this.parked ? "resume" : "park", this.pid, {}));
    this.park.dataset.verb = "park";
    this.park.title = "Its GPU memory into host memory, until it needs it again or is resumed";
    this.release = button("Release", () => this.act("release", this.pid, {}));
    this.release.dataset.verb = "release";
    this.release.title = "Everything as it was before DetShare";
    this.plots = {};
    for (const [name, title] of [["share", "Share"], ["memory", "Memory"], ["latency", "P99"]]) {
      const drawn = plot("wide", 40, `${title} over the last five minutes`);
      const value = el("span", { class: "used" });
      this.plots[name] = { drawn, value, figure: el("figure", {}, el("figcaption", {}, `${title} `, value), drawn) };
    }
    this.body.append(
      node("command", "p", { class: "command" }),
      node("warnings", "ul", { class: "warnings" }),
      node("facts", "dl", { class: "fields" }),
      el("fieldset", { class: "acts" }, el("legend", {}, "Set"),
        el("div", { class: "tabs", role: "group", "aria-label": "Class" }, ...this.classes),
        form("Weight", this.weight, "set-weight", (text) => ({ weight: Number(text) })),
        form("Memory limit", this.limit, "set-memory", (text) => ({ limit: text })),
        el("div", { class: "set" }, this.pause, this.park, this.release),
        node("refused", "p", { class: "hint" })),
      ...Object.values(this.plots).map(({ figure }) => figure),
      el("p", { class: "axis", "aria-hidden": "true" }, el("span", {}, "5 min ago"), el("span", {}, "now")),
      el("h3", {}, "Why"),
      node("why", "ul", { class: "told" }),
      node("decisions", "ol", { class: "told" }),
      el("h3", {}, "GPU time and limits"),
      node("told", "ul", { class: "told" }),
      el("details", {}, el("summary", {}, "Channel groups"), node("groups", "ul", { class: "told" })),
    );
  }

  // The row of the list: at once, before anything else is known.
  row(row) {
    this.pid = row.pid;
    this.paused = row.paused;
    this.parked = row.state === "parked";
    const told = cells(row);
    say($("detail-title"), `Program ${row.pid}`);
    say(this.command, row.command);
    keyed(this.facts, FACTS.filter((name) => told[name] !== "-"), (name) => name,
      (name) => el("div", {}, el("dt", {}, name.toLowerCase()), el("dd")), (node, name) => say(node.lastChild, told[name]));
    for (const each of this.classes) set(each, "aria-pressed", String(each.dataset.class === row.class));
    if (document.activeElement !== this.weight) this.weight.placeholder = row.weight === null ? "1 to 1000" : String(row.weight);
    if (document.activeElement !== this.limit) this.limit.placeholder = row.limit === null ? "8G, 512M, max" : memory(row.limit);
    say(this.pause, row.paused ? "Resume" : "Pause");
    say(this.park, this.parked ? "Resume" : "Park");
    this.#rights(row);
  }

  #rights(row) {
    const { change, lower, why } = this.store.may;
    const all = [...this.body.querySelectorAll("[data-verb]")];
    for (const each of all) {
      const verb = each.dataset.verb;
      let may = change.includes(verb) && !(verb === "set-memory" && !this.store.machine.limits);
      if (lower && verb === "set-priority") {
        const now = CLASSES.indexOf(row.class ?? "normal");
        may = may && now >= 0 && CLASSES.indexOf(each.dataset.class) >= now;
      }
      const inputs = each.tagName === "FORM" ? [...each.elements] : [each];
      for (const input of inputs) input.disabled = !may;
    }
    const module = change.includes("set-memory") && !this.store.machine.limits ? "Memory limits take detshare.ko, which is not loaded." : "";
    say(this.refused, [why, module].filter(Boolean).join(" "));
  }

  // Nothing of the program that was shown before.
  clear() {
    this.weight.value = this.limit.value = "";
    for (const list of [this.warnings, this.why, this.decisions, this.told, this.groups]) list.replaceChildren();
    for (const { drawn, value } of Object.values(this.plots)) {
      say(value, "");
      drawn.draw([], 1);
    }
  }

  known(data) {
    const last = (values) => values[values.length - 1] ?? null;
    const values = Object.values(data.share);
    const best = values.reduce((a, b) => ((last(b) ?? 0) > (last(a) ?? 0) ? b : a), values[0] ?? []);
    this.#plot("share", best, percent(last(best)), 1, data.seconds);
    const row = [...this.store.rows.values()].find((each) => each.pid === data.pid && each.start === data.start);
    const whole = row?.limit ?? this.store.gpus.find((gpu) => row?.gpus.includes(gpu.number))?.memory_bytes ?? 0;
    const of = whole ? ` of ${memory(whole)}` : "";
    this.#plot("memory", data.memory, memory(last(data.memory)) + of, whole, data.seconds);
    const top = Math.max(...data.latency.map((value) => value ?? 0), 0);
    this.#plot("latency", data.latency, `${seconds(last(data.latency))}, at most ${seconds(top)} (${data.latency_of})`, 0, data.seconds);
    set(this.plots.latency.figure, "hidden", !data.latency.some((value) => value !== null));
    lines(this.warnings, data.warnings);
    lines(this.told, [
      ...data.lines,
      ...data.limits.map((each) => `memory of ${each.text}: ${memory(each.used)} of ${memory(each.limit)}` + (each.refused ? `, refused ${each.refused} times` : "")),
      ...data.notes,
    ]);
    lines(this.groups, data.groups.map((each) =>
      `GPU ${each.gpu}, TSG 0x${each.handle.toString(16)}: ${each.kind} ${each.engine}, ${each.channels} channels, slice ${microseconds(each.slice_us)}` + (each.level ? `, level ${each.level}` : "")));
  }

  #plot(name, values, text, most, slots) {
    const { drawn, value } = this.plots[name];
    say(value, text);
    drawn.draw(against(values, most), slots);
  }

  // Why it stands as it does.
  because(story) {
    lines(this.why, [`policy ${story.policy.name}${story.policy.failed ? ` failed: ${story.policy.failed}` : ""}`, ...story.now]);
    const told = story.decisions.slice(-12).reverse();
    keyed(this.decisions, told, (each) => `${each.when} ${each.text}`,
      (each) => el("li", {}, el("time", {}, clock(each.when)), " ", each.text));
  }
}
