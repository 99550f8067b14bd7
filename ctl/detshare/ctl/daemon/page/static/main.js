// SPDX-License-Identifier: Apache-2.0
// The page: asks the daemon once a second what changed, while somebody can see it.

import { $, el, keyed, say, set } from "./dom.js";
import { Detail } from "./detail.js";
import { Gpus } from "./gpus.js";
import { forget, get, open, post } from "./link.js";
import { Log } from "./log.js";
import { Store } from "./store.js";
import { Table } from "./table.js";
import { clock, count, microseconds } from "./words.js";

const EVERY_MS = 1000;
const WHY_EVERY = 3; // looks
const store = new Store();
const table = new Table(store, choose);
const gpus = new Gpus(store, choose);
const detail = new Detail(store, act);
const log = new Log();

let chosen = "";
let looks = 0;
let lost = 0;
let restarted = "";
let timer = null;
let asking = false;
let again = false;

function link(state, text) {
  set($("link"), "data-state", state);
  say($("link"), text);
}

function notices(texts) {
  keyed($("notices"), texts.map((text, index) => ({ text, index })), (each) => each.index,
    () => el("p", { class: "notice" }), (node, each) => say(node, each.text));
}

async function look() {
  clearTimeout(timer);
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  again = false;
  try {
    const answer = await get(store.query);
    if (store.take(answer)) restarted = clock(Date.now() / 1000);
    lost = 0;
    show();
    await more();
  } catch (refusal) {
    missed(refusal);
  } finally {
    asking = false;
    if (again) look();
    else if (!document.hidden && $("login").hidden) timer = setTimeout(look, EVERY_MS);
  }
}

function missed(refusal) {
  if (refusal.status === 401) {
    forget();
    login(`${refusal.message}.`);
    return;
  }
  if (refusal.status === undefined) throw refusal; // an error of this page itself
  lost ||= Date.now();
  link("bad", `${refusal.message} since ${clock(lost / 1000)}; trying again`);
  document.body.dataset.stale = "true";
}

function login(why) {
  link("bad", "not connected");
  say($("login-why"), why);
  $("login").hidden = false;
  document.body.dataset.login = "true";
}

function show() {
  $("login").hidden = true;
  delete document.body.dataset.login;
  delete document.body.dataset.stale;
  const { machine, may } = store;
  const facts = [machine.host, `driver ${machine.driver}`, `backend ${machine.backend}`, table.summary];
  if (machine.policy.name) facts.push(`policy ${machine.policy.name}`);
  facts.push(`look ${microseconds(machine.look_s * 1e6)}`);
  keyed($("machine"), [`proof ${machine.proof}`, ...facts].map((text, index) => ({ text, index })), (each) => each.index,
    () => el("span"), (node, each) => say(node, each.text));
  set($("machine").firstChild, "class", machine.proof === "gpu" ? null : "proof");
  set($("machine").firstChild, "title", machine.proof === "model" ? "Simulated programs; no GPU is touched" : null);
  link("ok", restarted ? `live; the daemon was restarted at ${restarted}` : "live");
  const failed = machine.policy.failed ? [`The policy failed and decides nothing: ${machine.policy.failed}`] : [];
  notices([...failed, ...machine.warnings.map((text) => `Warning: ${text}`), ...(may.change.length ? [] : [may.why])]);
  document.title = `${machine.host}: DetShare`;
  gpus.show();
  table.show();
  log.events(store.events, store.told);
  const row = store.rows.get(chosen);
  if (row !== undefined) detail.row(row);
  else if (chosen) gone();
}

function gone() {
  say($("said"), `Program ${chosen.split(":")[0]} holds no GPU any more.`);
  close();
}

async function more() {
  looks += 1;
  const row = store.rows.get(chosen);
  const often = looks % WHY_EVERY === 0;
  const asked = [];
  if (row !== undefined) {
    asked.push(get(`page/programs/${row.pid}`).then((data) => isOpen(data) && detail.known(data)));
    if (often) asked.push(because(row));
  }
  if (often && log.shown === "decisions") asked.push(decisions());
  for (const each of await Promise.allSettled(asked)) {
    // a program that has just ended, or a daemon: the next look tells
    if (each.status === "rejected" && each.reason.status === undefined) throw each.reason;
  }
}

const isOpen = (data) => chosen.startsWith(`${data.pid}:`);

async function because(row) {
  const story = await get(`v1/why/${row.pid}?since=600`);
  if (isOpen(story)) detail.because(story);
}

async function decisions() {
  log.decisions((await get("v1/decisions?since=600&most=100")).decisions);
}

log.changed = () => log.shown === "decisions" && decisions().catch(() => {});

function choose(key, byKeys = false) {
  const row = store.rows.get(key);
  if (row === undefined) return;
  if (key !== chosen) detail.clear();
  chosen = key;
  table.mark(key);
  $("detail").hidden = false;
  document.body.dataset.detail = "true";
  detail.row(row);
  because(row).catch(() => {});
  if (byKeys) $("detail-title").focus();
  look();
}

function close() {
  const key = chosen;
  chosen = "";
  table.mark("");
  const within = $("detail").contains(document.activeElement);
  $("detail").hidden = true;
  delete document.body.dataset.detail;
  if (within) table.focus(key);
}

// What became of a verb, in a sentence or two.
function told(verb, args, answer) {
  const asked = [verb, ...Object.values(args)].join(" ");
  const changed = answer.changed.map((each) => {
    const limit = each.limit ? `limit ${each.limit.limit === null ? "none" : each.limit.limit}` : "";
    return [each.pid || "", each.note, limit].filter(Boolean).join(": ");
  });
  const skipped = answer.skipped.map((each) => `${each.pid || "nothing"} left alone: ${each.reason}`);
  const took = answer.seconds ? ` in ${microseconds(answer.seconds * 1e6)}` : "";
  return `${asked}: ${[...(changed.length ? [`done for ${changed.join(", ")}${took}`] : []), ...skipped].join(". ") || "nothing was changed"}`;
}

async function act(verb, pid, args) {
  say($("said"), `${verb} ${pid} ...`);
  set($("said"), "data-bad", false);
  try {
    const answer = await post(`v1/verbs/${verb}`, { who: String(pid), ...args });
    say($("said"), told(verb, args, answer));
    set($("said"), "data-bad", answer.changed.length === 0);
  } catch (refusal) {
    if (refusal.status === undefined) throw refusal;
    say($("said"), `${verb} ${pid} was not done: ${refusal.message}${refusal.next ? `. Next: ${refusal.next}` : ""}`);
    set($("said"), "data-bad", true);
  }
  look();
}

$("close").addEventListener("click", close);

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.altKey && !event.metaKey) {
    event.preventDefault();
    $("filter").focus();
  } else if (event.key === "Escape") {
    if (event.target === $("filter") && $("filter").value) {
      $("filter").value = "";
      $("filter").dispatchEvent(new Event("input"));
    } else if (chosen) close();
    else if (typing) table.focus("");
  }
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && $("login").hidden) look();
});

async function begin() {
  try {
    await open();
  } catch (refusal) {
    login(`${refusal.message}.`);
    return;
  }
  $("login").hidden = true;
  look();
}

addEventListener("hashchange", begin);
begin();
