// Message formats of model providers and frameworks, parsed into one: a role and blocks of text, tool calls and
// results. Supports OpenAI's chat messages and response items, Anthropic's content blocks, the parts of Bedrock and
// Gemini, the entries of Claude Code, the events of ADK, and the messages of Pydantic AI, A2A, Microsoft's Agent
// Framework, Letta and Grampus. The same formats as snapshots/message_formats.py.

import { findReference, parseReference } from "./references.js";

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const text = (value) => (value === null || value === undefined ? "" : String(value));

/** Return the items of a list or of an encoded tuple; null for anything else. */
const listOf = (value) => {
  if (Array.isArray(value)) return value;
  return isObject(value) && Array.isArray(value.$tuple) ? value.$tuple : null;
};

const KNOWN_FIELDS = new Set([
  "role", "content", "contents", "parts", "tool_calls", "tool_call_id", "name", "agent", "type", "refusal",
]);
/** Types of OpenAI's items that call a tool of the client, and where their arguments are. */
const ITEM_CALLS = {
  __proto__: null, function_call: "arguments", custom_tool_call: "input", local_shell_call: "action",
};
const ITEM_RESULTS = ["function_call_output", "custom_tool_call_output"];
const ROLES = { __proto__: null, ROLE_USER: "user", ROLE_AGENT: "assistant", request: "user", response: "assistant" };

/** Split an entry of Claude Code or an event of ADK into the message inside, its author, and the other fields. */
function unwrap(message) {
  if (isObject(message.message) && typeof message.message.role === "string") {
    const { message: inner, type, ...rest } = message;
    return { inner, name: "", rest };
  }
  if (isObject(message.content) && listOf(message.content.parts)) {
    const { content: inner, author, ...rest } = message;
    const isUser = author === "user";
    return { inner: { role: isUser ? "user" : "model", ...inner }, name: isUser ? "" : text(author), rest };
  }
  return { inner: message, name: text(message.agent ?? message.name), rest: {} };
}

function roleOf(message) {
  const role = message.role ?? (listOf(message.parts) ? message.kind : undefined);
  return typeof role === "string" ? (ROLES[role] ?? role) : null;
}

/**
 * Parse a message into `{role, name, blocks, rest}`; null if its format is unknown.
 * Blocks are `{kind: "text" | "thinking" | "call" | "result" | "blob" | "value", …}`.
 */
export function parseMessage(message) {
  if (!isObject(message)) return null;
  const item = parseResponseItem(message);
  if (item) return item;
  const { inner, name, rest } = unwrap(message);
  const role = roleOf(inner);
  if (role === null) return null;
  const blocks = [
    ...contentBlocks(inner.content ?? inner.parts ?? inner.contents, inner),
    ...listedResults(inner),
    ...callBlocks(listOf(inner.tool_calls) ?? []),
  ];
  if (typeof inner.refusal === "string") blocks.push({ kind: "text", text: inner.refusal });
  const others = Object.entries(inner).filter(([key]) => !KNOWN_FIELDS.has(key) && !(key === "kind" && inner.kind in ROLES));
  return { role, name, blocks, rest: { ...Object.fromEntries(others), ...rest } };
}

/** Parse an item of OpenAI's Responses API that is a message by itself. */
function parseResponseItem(item) {
  const call = itemCall(item);
  if (call) return { role: "assistant", name: "", blocks: [call], rest: {} };
  if (ITEM_RESULTS.includes(item.type)) {
    const block = { kind: "result", id: text(item.call_id), content: item.output };
    return { role: "tool", name: "", blocks: [block], rest: {} };
  }
  const thoughts = item.type === "reasoning" ? resultText(item.summary) : null;
  if (thoughts !== null) {
    const { type, summary, ...rest } = item;
    return { role: "assistant", name: "", blocks: [{ kind: "thinking", text: thoughts }], rest };
  }
  return null;
}

function itemCall(item) {
  const field = ITEM_CALLS[text(item.type)];
  if (!field) return null;
  return { kind: "call", id: text(item.call_id ?? item.id), name: text(item.name ?? item.type), input: item[field] };
}

/** Return the results in the lists of Letta's and Grampus' messages. */
function listedResults(message) {
  const results = [...(listOf(message.tool_returns) ?? []), ...(listOf(message.tool_results) ?? [])];
  return results.filter((each) => isObject(each) && (each.tool_call_id ?? null) !== null).map((each) => {
    const failed = each.status === "error" || (each.error ?? null) !== null;
    const content = each.func_response ?? each.output ?? each.error;
    return { kind: "result", id: text(each.tool_call_id), content, failed };
  });
}

function contentBlocks(content, message) {
  const id = message.tool_call_id ?? null;
  if (id !== null && !listedResults(message).some((result) => result.id === text(id))) {
    return [{ kind: "result", id: text(message.tool_call_id), name: text(message.name), content }];
  }
  if (content === null || content === undefined || content === "") return [];
  if (typeof content === "string") return [{ kind: "text", text: content }];
  const reference = parseReference(content);
  if (reference) return [{ kind: "blob", reference }];
  const parts = listOf(content);
  return parts ? parts.map(partBlock) : [{ kind: "value", value: content }];
}

function callBlocks(calls) {
  return calls.map((call) => {
    const inner = isObject(call?.function) ? call.function : call;
    if (!isObject(inner)) return { kind: "value", value: call };
    return { kind: "call", id: text(call.id), name: text(inner.name), input: inner.arguments ?? inner.args };
  });
}

/** Parse a part of a message or of a tool result into a block. */
export function partBlock(part) {
  if (typeof part === "string") return { kind: "text", text: part };
  if (!isObject(part)) return { kind: "value", value: part };
  return largePart(part) ?? typedPart(part) ?? namedPart(part) ?? kindPart(part) ?? mediaPart(part);
}

/** Parse a part that is a reference, or a text that is one. */
function largePart(part) {
  const isText = "part_kind" in part ? ["text", "user-prompt", "system-prompt", "thinking"].includes(part.part_kind)
    : !["tool_use", "tool_result"].includes(part.type);
  const content = isText && (part.text ?? part.thinking ?? ("part_kind" in part ? part.content : null));
  const reference = parseReference(part) ?? parseReference(content);
  return reference && { kind: "blob", reference };
}

/** Parse a part with an image or another content that is a reference. */
function mediaPart(part) {
  const found = findReference(part);
  return found ? { kind: "blob", ...found, value: part } : { kind: "value", value: part };
}

function typedPart(part) {
  const type = text(part.type);
  if (typeof part.text === "string" && (!type || type.endsWith("text"))) {
    return { kind: "text", text: part.text };
  }
  if (type === "thinking" || type === "reasoning") {
    return { kind: "thinking", text: text(part.thinking ?? part.reasoning ?? part.text) };
  }
  if (["tool_use", "server_tool_use", "mcp_tool_use"].includes(type)) {
    return { kind: "call", id: text(part.id), name: text(part.name), input: part.input };
  }
  if (type.endsWith("tool_result")) {
    return { kind: "result", id: text(part.tool_use_id), content: part.content, failed: part.is_error === true };
  }
  if (type === "function_result") {
    const failed = part.exception !== undefined && part.exception !== null;
    return { kind: "result", id: text(part.call_id), content: part.result, failed };
  }
  return itemCall(part);
}

/** Parse a part of Pydantic AI's messages. */
function kindPart(part) {
  const kind = text(part.part_kind);
  if (["text", "user-prompt", "system-prompt"].includes(kind)) {
    if (typeof part.content === "string") return { kind: "text", text: part.content };
  }
  if (kind === "thinking") return { kind: "thinking", text: text(part.content) };
  const id = text(part.tool_call_id);
  if (kind.endsWith("tool-call")) return { kind: "call", id, name: text(part.tool_name), input: part.args };
  if (kind.endsWith("tool-return") || (kind === "retry-prompt" && id)) {
    const failed = kind === "retry-prompt" || part.outcome === "failed";
    return { kind: "result", id, name: text(part.tool_name), content: part.content, failed };
  }
  return null;
}

function namedPart(part) {
  if (isObject(part.toolUse)) {
    const { toolUseId, name, input } = part.toolUse;
    return { kind: "call", id: text(toolUseId), name: text(name), input };
  }
  if (isObject(part.toolResult)) {
    const { toolUseId, content, status } = part.toolResult;
    return { kind: "result", id: text(toolUseId), content, failed: status === "error" };
  }
  if (isObject(part.functionCall)) {
    const { id, name, args } = part.functionCall;
    return { kind: "call", id: text(id), name: text(name), input: args };
  }
  if (isObject(part.functionResponse)) {
    const { id, name, response } = part.functionResponse;
    return { kind: "result", id: text(id), name: text(name), content: response };
  }
  return null;
}

/** Return the content of a tool result as text; null if it is more than text. */
export function resultText(content) {
  if (typeof content === "string") return content;
  const parts = listOf(content);
  if (!parts || !parts.length) return null;
  const texts = parts.map((part) => (isObject(part) && typeof part.text === "string" ? part.text : null));
  return texts.includes(null) ? null : texts.join("\n");
}
