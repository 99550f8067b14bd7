// SPDX-License-Identifier: Apache-2.0
// Questions to the daemon. The token stays in this tab; it travels in a header, never in an address.

const TOKEN = "detshare-token";
const PATIENCE_MS = 20000;
const VERB_MS = 75000; // as long as detshare-ctl waits: memory has to be copied

// The daemon's answer instead of doing it: {asked, stopped, next}; status 0 where nobody answered.
export class Refusal extends Error {
  constructor(status, told) {
    super(told.stopped);
    this.status = status;
    this.next = told.next;
  }
}

function headers(more = {}) {
  const token = sessionStorage.getItem(TOKEN);
  return token === null ? more : { ...more, Authorization: `Bearer ${token}` };
}

async function ask(path, options, patience = PATIENCE_MS) {
  let response;
  let body;
  try {
    const signal = AbortSignal.timeout(patience);
    response = await fetch(path, { ...options, cache: "no-store", credentials: "omit", redirect: "error", signal });
    body = await response.json();
  } catch (error) {
    throw new Refusal(0, { stopped: "the daemon does not answer", next: String(error) });
  }
  if (response.ok) return body;
  throw new Refusal(response.status, body.error ?? { stopped: `HTTP status ${response.status}`, next: "" });
}

export const get = (path) => ask(path, { headers: headers() });

export function post(path, body) {
  const sent = headers({ "Content-Type": "application/json" });
  return ask(path, { method: "POST", headers: sent, body: JSON.stringify(body) }, VERB_MS);
}

// Gives the code of the address for a token, and takes it out of the address. An address without one changes nothing.
export async function open() {
  const code = location.hash.slice(1);
  if (!/^[A-Za-z0-9_-]{20,}$/.test(code)) return;
  history.replaceState(null, "", location.pathname + location.search);
  sessionStorage.removeItem(TOKEN);
  const made = await post("page/session", { code });
  sessionStorage.setItem(TOKEN, made.token);
}

export const forget = () => sessionStorage.removeItem(TOKEN);
