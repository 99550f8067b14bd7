// SPDX-License-Identifier: Apache-2.0
// The list of programs: one row each, chosen by keys or pointer. The order stands still while somebody is in it.

import { $, el, keyed, say, set } from "./dom.js";
import { plot, shares } from "./plot.js";
import { keyOf } from "./store.js";
import { cells, count } from "./words.js";

const LATELY = 60; // seconds
const ORDERS = ["high", "normal", "low", "idle"];
const number = (value) => (typeof value === "number" ? -value : Infinity);
const place = (row) => (ORDERS.indexOf(row.class) < 0 ? ORDERS.length : ORDERS.indexOf(row.class));

// name, sort (ascending; the opposite is largest first already), title, right, shown only where some row has it
const COLUMNS = [
  { name: "PID", sort: (row) => row.pid, right: true },
  { name: "CLASS", sort: place },
  { name: "SHARE", sort: (row) => number(row.share), right: true, title: "of the GPU where it has most" },
  { name: "LATELY", title: "share in the last minute" },
  { name: "MEM", sort: (row) => number(row.memory), right: true },
  { name: "LIMIT", sort: (row) => number(row.limit), right: true, some: (row) => row.limit !== null },
  { name: "P99", sort: (row) => number(row.latency_s), right: true, title: "99 of 100 requests are done in it", some: (row) => row.latency_s !== null },
  { name: "TURN", sort: (row) => (row.turn === "" ? "~" : row.turn), some: (row) => row.turn !== "" },
  { name: "STATE", sort: (row) => row.state },
  { name: "GPU", sort: (row) => row.gpus[0] ?? Infinity, right: true },
  { name: "USER", sort: (row) => row.user },
  { name: "CONTAINER", sort: (row) => row.container || "~", some: (row) => row.container !== "" },
  { name: "SLICE", sort: (row) => number(row.slice_us), right: true },
  { name: "LEVEL", sort: (row) => row.level ?? "~" },
  { name: "COMMAND", sort: (row) => row.command },
];

export class Table {
  // chosen: called with the key of a row that somebody opens
  constructor(store, chosen) {
    this.store = store;
    this.chosen = chosen;
    this.by = "SHARE";
    this.down = false;
    this.text = "";
    this.open = "";
    this.active = "";
    this.order = [];
    this.held = false;
    this.seen = new Set();
    this.nodes = new Map();
    this.rows = $("rows");
    this.watch = new IntersectionObserver((entries) => this.#appear(entries), { root: $("scroll"), rootMargin: "80px" });
    for (const column of COLUMNS) $("heads").append(this.#head(column));
    $("filter").addEventListener("input", () => {
      this.text = $("filter").value.trim().toLowerCase();
      this.show(true);
    });
    this.rows.addEventListener("click", (event) => this.#pick(event.target.closest("tr")));
    this.rows.addEventListener("keydown", (event) => this.#key(event));
    this.rows.addEventListener("focusin", (event) => this.#activate(event.target.closest("tr")));
    $("scroll").addEventListener("pointerenter", () => (this.held = true));
    $("scroll").addEventListener("pointerleave", () => (this.held = false));
  }

  #head(column) {
    const more = { class: `c-${column.name}`, scope: "col", title: column.title };
    if (!column.sort) return el("th", more, column.name);
    const sort = () => {
      this.down = this.by === column.name && !this.down;
      this.by = column.name;
      this.show(true);
    };
    return el("th", more, el("button", { type: "button", class: "sort", onclick: sort }, column.name));
  }

  // sorted: put rows into order even while somebody is among them
  show(sorted = false) {
    const every = [...this.store.rows.values()];
    for (const { name, some } of COLUMNS) {
      if (some) $("table").classList.toggle(`no-${name}`, !every.some(some));
    }
    COLUMNS.forEach(({ name }, index) => {
      set($("heads").children[index], "aria-sort", name !== this.by ? null : this.down ? "descending" : "ascending");
    });
    const found = every.filter((row) => this.#matches(row));
    if (sorted || !(this.held || this.rows.contains(document.activeElement))) this.#sort(found);
    const ranks = new Map(this.order.map((key, index) => [key, index]));
    const rank = (row) => ranks.get(keyOf(row)) ?? Infinity;
    found.sort((a, b) => rank(a) - rank(b) || a.pid - b.pid);
    this.order = found.map(keyOf);
    const focused = this.rows.contains(document.activeElement) ? document.activeElement : null;
    if (!ranks.has(this.active) || !this.store.rows.has(this.active)) this.active = this.order[0] ?? "";
    keyed(this.rows, found, keyOf, (row) => this.#make(row), (node, row) => this.#update(node, row));
    if (this.nodes.size > found.length) {
      for (const [key, node] of this.nodes) if (!node.isConnected) this.nodes.delete(key);
    }
    if (focused !== null && document.activeElement !== focused) this.#node(this.active)?.focus({ preventScroll: true });
    for (const key of this.seen) this.#draw(key);
    say($("count"), found.length === every.length ? String(every.length) : `${found.length} of ${every.length}`);
    set($("none"), "hidden", found.length > 0);
    say($("none"), this.text ? "No program has that text." : "No program uses a GPU.");
  }

  #sort(found) {
    const { sort } = COLUMNS.find((column) => column.name === this.by);
    const sign = this.down ? -1 : 1;
    const compare = (a, b) => (a < b ? -sign : a > b ? sign : 0);
    found.sort((a, b) => compare(sort(a), sort(b)) || a.pid - b.pid);
    this.order = found.map(keyOf);
  }

  #matches(row) {
    if (!this.text) return true;
    return [row.pid, row.command, row.user, row.class, row.state, row.container].some((value) =>
      String(value ?? "").toLowerCase().includes(this.text),
    );
  }

  #make(row) {
    const node = el("tr", { tabindex: "-1" });
    for (const { name, right } of COLUMNS) {
      node.append(el(name === "PID" ? "th" : "td", { class: `c-${name}${right ? " right" : ""}`, scope: name === "PID" ? "row" : null }));
    }
    this.nodes.set(keyOf(row), node);
    node.plot = plot("spark", 20);
    node.children[COLUMNS.findIndex((column) => column.name === "LATELY")].append(node.plot);
    this.watch.observe(node);
    return node;
  }

  #update(node, row) {
    const key = node.dataset.key;
    set(node, "aria-selected", key === this.open ? "true" : "false");
    set(node, "tabindex", key === this.active ? "0" : "-1");
    if (node.row === row) return;
    node.row = row;
    const told = cells(row);
    COLUMNS.forEach(({ name }, index) => {
      if (name !== "LATELY") say(node.children[index], told[name]);
    });
    set(node, "data-class", row.class ?? "");
    set(node, "data-state", row.stalled ? "stalled" : row.state);
    set(node, "data-turn", row.turn.split(" ")[0]);
    set(node.lastChild, "title", row.command);
  }

  #appear(entries) {
    for (const entry of entries) {
      const { key } = entry.target.dataset;
      if (entry.isIntersecting) {
        this.seen.add(key);
        this.#draw(key);
      } else this.seen.delete(key);
    }
  }

  #draw(key) {
    const node = this.#node(key);
    if (node === undefined) this.seen.delete(key);
    else node.plot.draw(shares(this.store.steps(key).slice(-LATELY), this.store.levels), LATELY, true);
  }

  #node(key) {
    const node = this.nodes.get(key);
    return node?.isConnected ? node : undefined;
  }

  #activate(node) {
    if (node === null || node.dataset.key === this.active) return;
    set(this.#node(this.active) ?? node, "tabindex", "-1");
    this.active = node.dataset.key;
    set(node, "tabindex", "0");
  }

  #pick(node) {
    if (node === null || getSelection().toString()) return;
    node.focus({ preventScroll: true });
    this.chosen(node.dataset.key);
  }

  #key(event) {
    const node = event.target.closest("tr");
    if (node === null || event.altKey || event.ctrlKey || event.metaKey) return;
    const all = this.rows.children;
    const now = [...all].indexOf(node);
    const page = Math.max(Math.floor($("scroll").clientHeight / node.offsetHeight) - 2, 1);
    const to = {
      ArrowDown: now + 1, ArrowUp: now - 1, j: now + 1, k: now - 1,
      PageDown: now + page, PageUp: now - page, Home: 0, End: all.length - 1,
    }[event.key];
    if (to !== undefined) {
      const next = all[Math.min(Math.max(to, 0), all.length - 1)];
      next.focus();
      next.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" || event.key === " ") this.chosen(node.dataset.key, true);
    else return;
    event.preventDefault();
  }

  mark(key) {
    this.open = key;
    for (const node of this.rows.children) set(node, "aria-selected", node.dataset.key === key ? "true" : "false");
  }

  focus(key) {
    (this.#node(key) ?? this.#node(this.active) ?? $("filter")).focus();
  }

  get summary() {
    return count(this.store.rows.size, "program");
  }
}
