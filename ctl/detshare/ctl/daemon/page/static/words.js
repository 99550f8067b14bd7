// SPDX-License-Identifier: Apache-2.0
// Values in the words of detshare-top; "-" is what nobody knows.

export const UNKNOWN = "-";

const known = (value) => typeof value === "number" && Number.isFinite(value);

// As many digits as C's %.3g gives.
function digits(value, count) {
  return String(Number(value.toPrecision(count)));
}

function short(value) {
  return value < 9.95 ? value.toFixed(1).replace(/\.0$/, "") : value.toFixed(0);
}

export function memory(bytes) {
  if (!known(bytes) || bytes < 0) return UNKNOWN;
  let size = bytes;
  for (const unit of ["B", "K", "M", "G"]) {
    if (size < 999.5) return short(size) + unit;
    size /= 1024;
  }
  return short(size) + "T";
}

export function microseconds(us) {
  if (!known(us) || us < 0) return UNKNOWN;
  if (us < 999.5) return `${us.toFixed(0)}us`;
  if (us < 999500) return `${digits(us / 1e3, 3)}ms`;
  return us < 9999e6 ? `${digits(us / 1e6, us < 999.5e6 ? 3 : 4)}s` : ">9999s";
}

export const seconds = (value) => microseconds(known(value) ? value * 1e6 : null);

export const percent = (value) => (known(value) ? `${(value * 100).toFixed(0)}%` : UNKNOWN);

const SHORT_STATES = { "not-understood": "unclear" };

export function state(row) {
  return row.stalled ? "stalled" : SHORT_STATES[row.state] ?? (row.state || UNKNOWN);
}

export function klass(row) {
  return row.class ?? (row.weight === null ? UNKNOWN : `w ${row.weight}`);
}

export function slice(row) {
  return row.slice_us === "mixed" ? "mixed" : microseconds(row.slice_us);
}

// What a row tells in each column, by the column's name.
export function cells(row) {
  return {
    PID: String(row.pid),
    USER: row.user || UNKNOWN,
    CONTAINER: row.container || UNKNOWN,
    GPU: row.gpus.map((each) => (each < 0 ? "?" : each)).join(",") || UNKNOWN,
    CLASS: klass(row),
    SLICE: slice(row),
    LEVEL: row.level === null || row.level === "-" ? UNKNOWN : row.level,
    MEM: memory(row.memory),
    LIMIT: memory(row.limit),
    SHARE: percent(row.share),
    P99: seconds(row.latency_s),
    TURN: row.turn || UNKNOWN,
    STATE: state(row),
    COMMAND: row.command || UNKNOWN,
  };
}

export function clock(when) {
  return new Date(when * 1000).toLocaleTimeString([], { hour12: false });
}

export function count(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}
