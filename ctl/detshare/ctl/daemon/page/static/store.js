// SPDX-License-Identifier: Apache-2.0
// What the page knows: the last answers put together, and the histories that go on from them.

const FIRST = 35;
const BRIEF = 5; // seconds: what is missed for so long is taken to be as it is now
export const GAP = -1;

export const keyOf = (row) => `${row.pid}:${row.start}`;

export class Store {
  constructor() {
    this.boot = "";
    this.version = -1;
    this.told = -1;
    this.second = 0;
    this.seconds = 300;
    this.levels = 50;
    this.machine = null;
    this.may = { change: [], lower: false, why: "", user: "" };
    this.rows = new Map();
    this.lately = new Map(); // key -> Map of GPU -> steps, one a second, the newest last
    this.gpus = [];
    this.events = [];
  }

  get query() {
    return `page/view?boot=${this.boot}&since=${this.version}&events=${this.told}`;
  }

  // Whether the answer came from another daemon than the last one.
  take(answer) {
    const another = this.boot !== "" && answer.boot !== this.boot;
    const passed = answer.full ? 0 : answer.second - this.second;
    for (const name of ["boot", "version", "told", "second", "seconds", "levels", "machine", "may"]) {
      this[name] = answer[name];
    }
    if (answer.full) {
      this.rows.clear();
      this.lately.clear();
    }
    for (const key of answer.gone) {
      this.rows.delete(key);
      this.lately.delete(key);
    }
    for (const row of answer.rows) this.#row(row);
    if (passed > 0) this.#goOn(passed);
    else if (!answer.full) for (const [key, row] of this.rows) this.#put(key, row, 0);
    this.#sums(answer, passed);
    this.events = answer.full ? answer.events : [...this.events, ...answer.events].slice(-200);
    return another;
  }

  #row(row) {
    const key = keyOf(row);
    if (row.lately !== undefined) {
      const found = new Map();
      for (const [gpu, text] of Object.entries(row.lately)) {
        found.set(Number(gpu), Array.from(text, (char) => (char === " " ? GAP : char.charCodeAt(0) - FIRST)));
      }
      this.lately.set(key, found);
      delete row.lately;
    }
    this.rows.set(key, row);
  }

  #goOn(passed) {
    for (const [key, row] of this.rows) this.#put(key, row, passed);
  }

  // The step of this second, so many seconds after the last one.
  #put(key, row, passed) {
    let found = this.lately.get(key);
    if (found === undefined) this.lately.set(key, (found = new Map()));
    for (const [gpu, step] of row.now) {
      let steps = found.get(gpu);
      if (steps === undefined) found.set(gpu, (steps = []));
      if (passed === 0 && steps.length) steps.pop();
      const between = passed <= BRIEF ? step : GAP;
      if (steps.length) for (let missed = 1; missed < Math.min(passed, this.seconds); missed++) steps.push(between);
      steps.push(step);
      if (steps.length > this.seconds) steps.splice(0, steps.length - this.seconds);
    }
  }

  #sums(answer, passed) {
    const old = new Map(this.gpus.map((gpu) => [gpu.uuid, gpu]));
    this.gpus = answer.gpus;
    if (answer.full) return;
    for (const gpu of this.gpus) {
      const before = old.get(gpu.uuid);
      if (before === undefined) continue;
      for (const name of ["share", "memory"]) {
        const kept = passed > 0 ? before[name] : before[name].slice(0, -1);
        const between = passed <= BRIEF ? gpu[name][0] : null;
        const gap = Array(Math.min(Math.max(passed - 1, 0), this.seconds)).fill(between);
        gpu[name] = [...kept, ...gap, ...gpu[name]].slice(-this.seconds);
      }
    }
  }

  // Steps of a program, of the GPU where it had most lately.
  steps(key) {
    let best = [];
    let most = -1;
    for (const steps of this.lately.get(key)?.values() ?? []) {
      const sum = steps.slice(-60).reduce((total, step) => total + Math.max(step, 0), 0);
      if (sum > most) [best, most] = [steps, sum];
    }
    return best;
  }
}
