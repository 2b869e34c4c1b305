// One message of the conversation: its role, text, tool calls and results.

import { parseMessage, partBlock, resultText } from "../api/messages.js";
import { findReference, parseReference } from "../api/references.js";
import { blobView } from "../components/blob.js";
import { SIGNS } from "../components/changes.js";
import { button, el } from "../components/dom.js";
import { count } from "../components/format.js";
import { valueTree } from "../components/tree.js";

const MAX_CHARACTERS = 900;
const MAX_LINES = 14;
const MAX_LINE = 76;
const ROLES = { __proto__: null, user: "User", assistant: "Assistant", model: "Assistant", system: "System",
  developer: "Developer", tool: "Tool", function: "Tool" };
const STYLES = { __proto__: null, model: "assistant", developer: "system", function: "tool" };

/**
 * Create the article of a message. `kind` is what the event did to it: "added", "changed" or undefined. `blobs`
 * downloads its large parts.
 */
export function messageArticle(message, index, total, kind, blobs) {
  const parsed = parseMessage(message);
  const hasOnlyResults = parsed?.blocks.length > 0 && parsed.blocks.every((block) => block.kind === "result");
  const role = parsed ? (hasOnlyResults ? "tool" : parsed.role) : "unknown";
  const sender = parsed ? (ROLES[role] ?? role) : "Message";
  const mark = kind && `${kind} by this event`;
  const head = el("header", { class: "message-head" },
    el("span", { class: "sender" }, sender),
    parsed?.name && el("span", { class: "muted" }, parsed.name),
    el("span", { class: "muted number" }, `#${index}`),
    mark && el("span", { class: `mark ${kind}` }, `${SIGNS[kind]} ${mark}`));
  const style = STYLES[role] ?? (Object.hasOwn(ROLES, role) ? role : "unknown");
  return el("article", {
    class: `message role-${style}${kind ? ` is-${kind}` : ""}`, tabindex: "-1",
    "data-index": index, "aria-posinset": index + 1, "aria-setsize": total,
    "aria-label": `message ${index}, ${sender}${mark ? `, ${mark}` : ""}`,
  }, head, parsed ? messageBody(parsed, blobs) : valueTree("message in an unknown format", message, { blobs }));
}

function messageBody({ blocks, rest }, blobs) {
  const body = el("div", { class: "message-body" }, blocks.map((block) => messageBlock(block, blobs)));
  if (!blocks.length) body.append(el("p", { class: "muted" }, "(no content)"));
  if (Object.keys(rest).length) body.append(folded("other fields", rest, blobs));
  return body;
}

/** Show a value in a disclosure; it is drawn when that is opened. */
function folded(name, value, blobs) {
  const details = el("details", {}, el("summary", {}, name));
  details.addEventListener("toggle", () => {
    if (details.open && !details.querySelector(".tree")) details.append(valueTree(name, value, { blobs }));
  });
  return details;
}

function messageBlock(block, blobs) {
  if (block.kind === "text") return foldedText(block.text, "prose");
  if (block.kind === "thinking") {
    return el("details", { class: "thinking" }, el("summary", {}, "thinking"), foldedText(block.text, "prose"));
  }
  if (block.kind === "call") return callBlock(block, blobs);
  if (block.kind === "result") return resultBlock(block, blobs);
  if (block.kind === "blob") {
    const part = block.value && folded("other fields", block.value, blobs);
    return el("div", {}, blobView(block.reference, blobs, block.mediaType), part);
  }
  return valueTree("part of a message", block.value, { blobs });
}

function callBlock({ id, name, input }, blobs) {
  return el("div", {},
    el("p", { class: "call-head" },
      el("span", { class: "call-sign", "aria-hidden": "true" }, "→"), "calls ",
      el("code", { class: "tool" }, name || "a tool"),
      id && el("span", { class: "muted id" }, id),
      el("span", { class: "call-link", "data-result-of": id })),
    callInput(input, blobs));
}

function callInput(input, blobs) {
  if (input === undefined || input === null || input === "") return null;
  const reference = parseReference(input);
  if (reference) return blobView(reference, blobs);
  if (findReference(input)) return valueTree("arguments", input, { blobs });
  const value = typeof input === "string" ? parseJson(input) : input;
  return foldedText(typeof value === "string" ? value : formatJson(value), "code");
}

function resultBlock({ id, name, content, failed }, blobs) {
  return el("div", { class: failed ? "failed" : null },
    el("p", { class: "call-head" },
      el("span", { class: "call-sign", "aria-hidden": "true" }, "←"),
      failed ? "error from " : "result of ",
      el("code", { class: "tool" }, name || "a tool"),
      id && el("span", { class: "muted id" }, id),
      el("span", { class: "call-link", "data-call-of": id })),
    resultContent(content, blobs));
}

function resultContent(content, blobs) {
  if (content === undefined || content === null) return null;
  const reference = parseReference(content);
  if (reference) return blobView(reference, blobs);
  const text = resultText(content);
  if (text === null && Array.isArray(content) && findReference(content)) {
    return content.map((part) => messageBlock(partBlock(part), blobs));
  }
  if (text === null) return valueTree("result", content, { blobs });
  const value = parseJson(text);
  return foldedText(typeof value === "string" ? text : formatJson(value), "code");
}

/** Parse a text that is a JSON object or list; return any other text as it is. */
function parseJson(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Format JSON on one line if it fits, else indented. */
function formatJson(value) {
  const line = JSON.stringify(value, null, 1).replaceAll(/\n\s*/g, " ");
  return line.length <= MAX_LINE ? line : JSON.stringify(value, null, 2);
}

/** Show the start of a text, with a button that shows the rest of a long one. */
function foldedText(text, style) {
  const node = el(style === "code" ? "pre" : "p", { class: style });
  const start = startOf(text);
  if (start.length === text.length) {
    node.textContent = text;
    return node;
  }
  node.textContent = `${start}…`;
  const showAll = `show all (${count(text.length)} characters)`;
  const toggle = button(showAll, () => {
    const isExpanded = toggle.getAttribute("aria-expanded") === "true";
    node.textContent = isExpanded ? `${start}…` : text;
    toggle.setAttribute("aria-expanded", String(!isExpanded));
    toggle.textContent = isExpanded ? showAll : "show less";
  }, { class: "quiet small", "aria-expanded": "false" });
  return el("div", { class: "folded" }, node, toggle);
}

function startOf(text) {
  let end = -1;
  for (let lines = 0; lines < MAX_LINES; lines += 1) {
    end = text.indexOf("\n", end + 1);
    if (end < 0) break;
  }
  const start = end < 0 ? text : text.slice(0, end);
  return start.length > MAX_CHARACTERS * 1.2 ? start.slice(0, MAX_CHARACTERS) : start;
}
