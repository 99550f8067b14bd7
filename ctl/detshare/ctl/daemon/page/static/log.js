// SPDX-License-Identifier: Apache-2.0
// Events and decisions, the newest first.

import { $, el, keyed, set } from "./dom.js";
import { clock } from "./words.js";

const TABS = ["events", "decisions"];

export class Log {
  constructor() {
    this.shown = "events";
    for (const name of TABS) {
      const tab = $(`tab-${name}`);
      tab.addEventListener("click", () => this.#choose(name));
      tab.addEventListener("keydown", (event) => {
        if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
        event.preventDefault();
        const next = TABS[(TABS.indexOf(name) + 1) % TABS.length];
        this.#choose(next);
        $(`tab-${next}`).focus();
      });
    }
  }

  #choose(chosen) {
    this.shown = chosen;
    for (const name of TABS) {
      set($(`tab-${name}`), "aria-selected", String(name === chosen));
      set($(`tab-${name}`), "tabindex", name === chosen ? null : "-1");
      $(`panel-${name}`).hidden = name !== chosen;
    }
    this.changed?.();
  }

  events(events, told) {
    const first = told - events.length;
    const numbered = events.map((event, index) => ({ ...event, number: first + index })).reverse();
    keyed($("events"), numbered, (event) => event.number, (event) =>
      el("li", { "data-kind": event.kind }, el("time", {}, clock(event.when)), " ",
        el("b", {}, event.pid === null ? event.kind : `${event.kind} ${event.pid}`), " ", event.text));
  }

  decisions(decisions) {
    keyed($("decisions"), [...decisions].reverse(), (each) => `${each.when} ${each.text}`, (each) =>
      el("li", {}, el("time", {}, clock(each.when)), " ", each.text));
    if (!decisions.length) keyed($("decisions"), ["Nothing was decided in the last ten minutes."], (text) => text, (text) => el("li", {}, text));
  }
}
