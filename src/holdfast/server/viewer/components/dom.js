// Making elements. Whatever comes from data enters the page here, as text nodes and attributes that
// hold no code: nothing in the viewer ever parses markup.

let lastId = 0;

/** An id that no other element has. */
export const freshId = (prefix) => `${prefix}-${++lastId}`;

/** The element of the page with this id. */
export const byId = (id) => document.getElementById(id);

/**
 * A new element. `class`, `text` and `on` (listeners by event) are special, `true` and `false` are
 * boolean attributes, null and undefined are left out.
 */
export function el(name, attributes = {}, ...children) {
  return dress(document.createElement(name), attributes, children);
}

/** A new element of SVG. */
export function svg(name, attributes = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.append(document.createTextNode(String(value)));
    else if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

/** Append elements, texts and lists of them; nothing for null, undefined and false. */
export function add(node, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Make these the only children of a node. */
export function fill(node, ...children) {
  const fresh = document.createDocumentFragment();
  add(fresh, children);
  node.replaceChildren(fresh);
}

/** Say that a part of the page is about to change, or is up to date again. */
export const setBusy = (node, isBusy) => node.setAttribute("aria-busy", String(isBusy));

/** A button that does something. */
export function button(text, act, attributes = {}) {
  return el("button", { type: "button", ...attributes, on: { click: act } }, text);
}

/** A label and the control it is for, one above the other. */
export function field(label, control, hint = null) {
  control.id ||= freshId("field");
  const told = hint && el("small", { id: `${control.id}-hint`, class: "muted" }, hint);
  if (told) control.setAttribute("aria-describedby", told.id);
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control, told);
}

/** A checkbox with its label behind it. */
export function checkbox(label, checked = false) {
  const box = el("input", { type: "checkbox", checked, id: freshId("box") });
  return { box, row: el("div", { class: "check" }, box, el("label", { for: box.id }, label)) };
}
