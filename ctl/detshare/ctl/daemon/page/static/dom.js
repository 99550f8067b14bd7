// SPDX-License-Identifier: Apache-2.0
// Elements of the page. Texts become text nodes only, and what did not change is not touched.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

// An element with attributes, listeners (on...) and children: elements, or texts.
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else set(made, key, value);
  }
  made.append(...children);
  return made;
}

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// null and false take the attribute away.
export function set(node, key, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(key)) node.removeAttribute(key);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(key) !== text) node.setAttribute(key, text);
}

export function say(node, text) {
  const last = node.lastChild;
  if (last === node.firstChild && last !== null && last.nodeType === Node.TEXT_NODE) {
    if (last.data !== text) last.data = text;
  } else if (last !== null || text !== "") node.textContent = text;
}

// Children of a node by key: made where new, brought up to date, taken out where gone, in this order.
export function keyed(parent, items, keyOf, make, update = () => {}) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let node = old.get(key);
    if (node === undefined) {
      node = make(item);
      node.dataset.key = key;
    }
    old.delete(key);
    update(node, item);
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
  for (const node of old.values()) node.remove();
}
