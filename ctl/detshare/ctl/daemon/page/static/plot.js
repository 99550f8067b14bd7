// SPDX-License-Identifier: Apache-2.0
// Small plots. Values are 0..1, null where nobody knows; the newest is at the right.

import { set, svg } from "./dom.js";

// Parts of a path: a new one begins behind each gap.
function parts(values, slots) {
  const found = [];
  let open = null;
  values.forEach((value, index) => {
    if (value === null) {
      open = null;
      return;
    }
    if (open === null) found.push((open = []));
    open.push([slots - values.length + index, value]);
  });
  return found;
}

const at = (value, height) => (height - Math.min(Math.max(value, 0), 1) * (height - 1) - 0.5).toFixed(1);

function line(values, slots, height) {
  let path = "";
  for (const part of parts(values, slots)) {
    path += part.map(([x, value], index) => `${index ? "L" : "M"}${x + 0.5} ${at(value, height)}`).join("");
    if (part.length === 1) path += "h.01";
  }
  return path;
}

function area(values, slots, height) {
  let path = "";
  for (const part of parts(values, slots)) {
    path += `M${part[0][0]} ${height}`;
    for (const [x, value] of part) path += `V${at(value, height)}H${x + 1}`;
    path += `V${height}Z`;
  }
  return path;
}

// A plot of so many slots, with an area of steps and, where wanted, a line above it.
export function plot(className, height, label = "") {
  const fill = svg("path", { class: "area" });
  const stroke = svg("path", { class: "line", "vector-effect": "non-scaling-stroke" });
  const made = svg("svg", { class: className, preserveAspectRatio: "none" }, fill, stroke);
  if (label) {
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", label);
  } else made.setAttribute("aria-hidden", "true");
  made.draw = (values, slots, steps = false) => {
    set(made, "viewBox", `0 0 ${slots} ${height}`);
    set(fill, "d", area(values, slots, height));
    set(stroke, "d", steps ? "" : line(values, slots, height));
  };
  return made;
}

export const shares = (steps, levels) => steps.map((step) => (step < 0 ? null : step / levels));

// Values of any size against the largest of them, or against `most`.
export function against(values, most) {
  const top = most || Math.max(...values.map((value) => value ?? 0), 0) || 1;
  return values.map((value) => (value === null ? null : value / top));
}
