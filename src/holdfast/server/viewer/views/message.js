// One message of the conversation as people read it: who, what was said, which tools were called
// with what, and what came of it.

import { button, el } from "../components/dom.js";
import { count } from "../components/format.js";
import { SIGNS } from "../components/changes.js";
import { read, resultText } from "../api/messages.js";
import { treeOf } from "../components/tree.js";

const FOLD_CHARACTERS = 900;
const FOLD_LINES = 14;
const ROLES = { __proto__: null, user: "User", assistant: "Assistant", model: "Assistant", system: "System",
  developer: "Developer", tool: "Tool", function: "Tool" };
const LOOKS = { __proto__: null, model: "assistant", developer: "system", function: "tool" };

/** A message as an article. `kind` is what this step did to it, if anything. */
export function messageView(message, index, total, kind) {
  const found = read(message);
  const onlyResults = found?.blocks.length > 0 && found.blocks.every((block) => block.kind === "result");
  const role = found ? (onlyResults ? "tool" : found.role) : "unknown";
  const who = found ? (ROLES[role] ?? role) : "Message";
  const marked = kind && el("span", { class: `mark ${kind}` }, `${SIGNS[kind]} ${kind} at this step`);
  const head = el("header", { class: "message-head" },
    el("span", { class: "who" }, who),
    found?.name && el("span", { class: "muted" }, found.name),
    el("span", { class: "muted number" }, `#${index}`),
    marked);
  const look = LOOKS[role] ?? (Object.hasOwn(ROLES, role) ? role : "unknown");
  return el("article", {
    class: `message role-${look}${kind ? ` is-${kind}` : ""}`, tabindex: "-1",
    "data-index": index, "aria-posinset": index + 1, "aria-setsize": total,
    "aria-label": `message ${index}, ${who}${kind ? `, ${kind} at this step` : ""}`,
  }, head, found ? bodyOf(found) : treeOf("message of an unknown shape", message));
}

function bodyOf(found) {
  const body = el("div", { class: "message-body" }, found.blocks.map(blockView));
  if (!found.blocks.length) body.append(el("p", { class: "muted" }, "(no content)"));
  if (Object.keys(found.rest).length) {
    const fields = el("details", { class: "rest" }, el("summary", {}, "further fields"));
    fields.addEventListener("toggle", () => {
      if (fields.open && !fields.querySelector(".tree")) fields.append(treeOf("further fields", found.rest));
    });
    body.append(fields);
  }
  return body;
}

function blockView(block) {
  if (block.kind === "text") return folded(block.text, "said");
  if (block.kind === "thinking") {
    return el("details", { class: "thinking" }, el("summary", {}, "thinking"), folded(block.text, "said"));
  }
  if (block.kind === "call") return callView(block);
  if (block.kind === "result") return resultView(block);
  return treeOf("part of a message", block.value);
}

function callView({ id, name, input }) {
  return el("div", { class: "call", "data-call": id },
    el("p", { class: "call-head" },
      el("span", { class: "call-sign", "aria-hidden": "true" }, "→"), "calls ",
      el("code", { class: "tool" }, name || "a tool"),
      id && el("span", { class: "muted id" }, id),
      el("span", { class: "other-end", "data-answer-to": id })),
    inputView(input));
}

function inputView(input) {
  if (input === undefined || input === null || input === "") return null;
  const value = typeof input === "string" ? parsedOr(input) : input;
  if (typeof value === "string") return folded(value, "code");
  return folded(pretty(value), "code");
}

/** JSON on one line where it fits, else on many. */
function pretty(value) {
  const line = JSON.stringify(value, null, 1).replaceAll(/\n\s*/g, " ");
  return line.length <= 76 ? line : JSON.stringify(value, null, 2);
}

function resultView({ id, name, content, failed }) {
  const text = resultText(content);
  return el("div", { class: `result${failed ? " failed" : ""}`, "data-result": id },
    el("p", { class: "call-head" },
      el("span", { class: "call-sign", "aria-hidden": "true" }, "←"),
      failed ? "error from " : "result of ",
      el("code", { class: "tool", "data-tool-of": id }, name || "a tool"),
      id && el("span", { class: "muted id" }, id),
      el("span", { class: "other-end", "data-call-of": id })),
    resultBody(content, text));
}

function resultBody(content, text) {
  if (content === undefined || content === null) return null;
  if (text === null) return treeOf("result", content);
  const value = parsedOr(text);
  return typeof value === "string" ? folded(text, "code") : folded(pretty(value), "code");
}

/** What a text holds as JSON, where that is an object or a list; else the text. */
function parsedOr(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text; // it only began like JSON
  }
}

/** A text that is cut where it is long, with a button that shows all of it. */
export function folded(text, look) {
  const shown = el(look === "code" ? "pre" : "p", { class: look });
  const start = beginning(text);
  if (start.length === text.length) {
    shown.textContent = text;
    return shown;
  }
  shown.textContent = `${start}…`;
  const whole = button(`show all (${count(text.length)} characters)`, () => {
    const isOpen = whole.getAttribute("aria-expanded") === "true";
    shown.textContent = isOpen ? `${start}…` : text;
    whole.setAttribute("aria-expanded", String(!isOpen));
    whole.textContent = isOpen ? `show all (${count(text.length)} characters)` : "show less";
  }, { class: "quiet small", "aria-expanded": "false" });
  return el("div", { class: "folded" }, shown, whole);
}

function beginning(text) {
  let end = -1;
  for (let lines = 0; lines < FOLD_LINES; lines += 1) {
    end = text.indexOf("\n", end + 1);
    if (end < 0) break;
  }
  const start = end < 0 ? text : text.slice(0, end);
  return start.length > FOLD_CHARACTERS * 1.2 ? start.slice(0, FOLD_CHARACTERS) : start;
}
