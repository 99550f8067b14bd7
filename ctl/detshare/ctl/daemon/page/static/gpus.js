// SPDX-License-Identifier: Apache-2.0
// A card for each GPU: memory, share, the rotation, and who ran when.

import { $, el, keyed, say, set } from "./dom.js";
import { against, plot, shares } from "./plot.js";
import { keyOf } from "./store.js";
import { memory, percent } from "./words.js";

const LANES = 8;
const SPANS = { brief: "5 s", long: "5 min" };
let made = 0;

export class Gpus {
  // chosen: called with the key of a program whose lane somebody opens
  constructor(store, chosen) {
    this.store = store;
    this.chosen = chosen;
    this.span = "brief";
  }

  show() {
    keyed($("gpus"), this.store.gpus, (gpu) => gpu.uuid, (gpu) => this.#make(gpu), (node, gpu) => this.#update(node, gpu));
  }

  #make(gpu) {
    const id = `gpu-${(made += 1)}`;
    const node = el("article", { class: "card gpu", "aria-labelledby": id });
    const part = (name) => (node[name] = el("span", { class: name }));
    node.share = plot("wide", 40, "Share of the GPU in use over the last five minutes");
    node.memory = plot("wide memory", 40, "Memory in use over the last five minutes");
    node.meter = el("meter", { min: 0, max: 1, low: 0.8, high: 0.95, optimum: 0, "aria-label": "Memory in use" });
    node.lanes = el("ol", { class: "lanes" });
    node.why = el("p", { class: "hint" });
    const spans = Object.entries(SPANS).map(([name, text]) =>
      el("button", { type: "button", "data-span": name, onclick: () => this.#choose(name) }, text),
    );
    node.spans = el("div", { class: "tabs", role: "group", "aria-label": "Length of the time line" }, ...spans);
    node.append(
      el("h2", { id }, part("name"), part("model")),
      el("p", { class: "rotation" }, part("turn")),
      el("div", { class: "pair" },
        el("figure", {}, el("figcaption", {}, "Share ", part("used")), node.share),
        el("figure", {}, el("figcaption", {}, "Memory ", part("bytes"), " ", node.meter), node.memory)),
      el("div", { class: "bar" }, el("h3", {}, "Who ran when"), node.spans),
      node.lanes,
      el("p", { class: "axis", "aria-hidden": "true" }, part("begin"), el("span", {}, "now")),
      node.why,
    );
    return node;
  }

  #choose(span) {
    this.span = span;
    this.show();
  }

  #update(node, gpu) {
    const last = (values) => values[values.length - 1];
    const used = last(gpu.memory);
    say(node.name, `GPU ${gpu.number}`);
    say(node.model, gpu.name);
    set(node.model, "title", gpu.uuid);
    say(node.turn, gpu.rotation);
    set(node.turn.parentNode, "hidden", !gpu.rotation);
    say(node.used, percent(last(gpu.share)));
    say(node.bytes, `${memory(used)} of ${gpu.memory_bytes ? memory(gpu.memory_bytes) : "-"}`);
    set(node.meter, "value", gpu.memory_bytes ? (used / gpu.memory_bytes).toFixed(3) : 0);
    node.share.draw(gpu.share, this.store.seconds);
    node.memory.draw(against(gpu.memory, gpu.memory_bytes), this.store.seconds);
    for (const button of node.spans.children) set(button, "aria-pressed", String(button.dataset.span === this.span));
    const brief = this.span === "brief";
    const lanes = brief ? gpu.fine : this.#long(gpu);
    const slots = brief ? Math.round(5 / 0.1) : this.store.seconds;
    say(node.begin, `${SPANS[this.span]} ago`);
    keyed(node.lanes, [...lanes].sort((a, b) => a.pid - b.pid), keyOf, (lane) => this.#lane(lane), (row, lane) => {
      const known = this.store.rows.get(keyOf(lane));
      say(row.label, `${lane.pid} ${known?.command ?? ""}`);
      set(row, "data-class", known?.class ?? "");
      set(row, "data-holds", gpu.holder !== "" && known?.turn === "holds");
      row.plot.draw(shares(lane.steps, this.store.levels), slots, true);
    });
    // NVML knows of seconds only
    const nobody = lanes.length ? "" : last(gpu.share) ? "Not known in tenths of a second. " : "Nobody ran. ";
    say(node.why, nobody + (gpu.why ? `It rotates so because ${gpu.why}.` : ""));
  }

  #long(gpu) {
    const found = [];
    for (const [key, byGpu] of this.store.lately) {
      const steps = byGpu.get(gpu.number);
      const row = this.store.rows.get(key);
      if (steps === undefined || row === undefined) continue;
      const sum = steps.reduce((total, step) => total + Math.max(step, 0), 0);
      if (sum > 0) found.push({ pid: row.pid, start: row.start, steps, sum });
    }
    return found.sort((a, b) => b.sum - a.sum || a.pid - b.pid).slice(0, LANES);
  }

  #lane(lane) {
    const row = el("li");
    row.label = el("button", { type: "button", class: "lane", onclick: () => this.chosen(keyOf(lane), true) });
    row.plot = plot("band", 20);
    row.append(row.label, row.plot);
    return row;
  }
}
