// Elements. Data enters the page only here, as text nodes and attributes that hold no code: the viewer never parses
// markup.

let lastId = 0;

/** Return an id that no other element has. */
export const freshId = (prefix) => `${prefix}-${++lastId}`;

export const byId = (id) => document.getElementById(id);

/**
 * Create an element. `on` holds listeners by event; `true` and `false` are boolean attributes; null and undefined are
 * left out.
 */
export function el(name, attributes = {}, ...children) {
  return build(document.createElement(name), attributes, children);
}

/** Create an SVG element. */
export function svg(name, attributes = {}, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

/** Append elements, texts and lists of them; null, undefined and false add nothing. */
export function append(node, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace the children of a node. */
export function fill(node, ...children) {
  const fragment = document.createDocumentFragment();
  append(fragment, children);
  node.replaceChildren(fragment);
}

/** Mark a part of the page as loading, or as up to date. */
export const setBusy = (node, isBusy) => node.setAttribute("aria-busy", String(isBusy));

export function button(text, onClick, attributes = {}) {
  return el("button", { type: "button", ...attributes, on: { click: onClick } }, text);
}

/** Create a label above the control it is for. */
export function field(label, control, hint = null) {
  control.id ||= freshId("field");
  const hintNode = hint && el("small", { id: `${control.id}-hint`, class: "muted" }, hint);
  if (hintNode) control.setAttribute("aria-describedby", hintNode.id);
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control, hintNode);
}

/** Create a checkbox with its label beside it. */
export function checkbox(label, checked = false) {
  const box = el("input", { type: "checkbox", checked, id: freshId("box") });
  return { box, row: el("div", { class: "check" }, box, el("label", { for: box.id }, label)) };
}
