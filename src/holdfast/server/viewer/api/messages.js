// Message formats of model providers, parsed into one: a role and blocks of text, tool calls and results. Supports
// OpenAI's chat messages and response items, Anthropic's content blocks, and the parts of Bedrock and Gemini.

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const text = (value) => (value === null || value === undefined ? "" : String(value));

/** Return the items of a list or of an encoded tuple; null for anything else. */
const listOf = (value) => {
  if (Array.isArray(value)) return value;
  return isObject(value) && Array.isArray(value.$tuple) ? value.$tuple : null;
};

const KNOWN_FIELDS = new Set([
  "role", "content", "parts", "tool_calls", "tool_call_id", "name", "agent", "type", "refusal",
]);

/**
 * Parse a message into `{role, name, blocks, rest}`; null if its format is unknown.
 * Blocks are `{kind: "text" | "thinking" | "call" | "result" | "value", …}`.
 */
export function parseMessage(message) {
  if (!isObject(message)) return null;
  const item = parseResponseItem(message);
  if (item) return item;
  if (typeof message.role !== "string") return null;
  const blocks = [
    ...contentBlocks(message.content ?? message.parts, message),
    ...callBlocks(listOf(message.tool_calls) ?? []),
  ];
  if (typeof message.refusal === "string") blocks.push({ kind: "text", text: message.refusal });
  const rest = Object.fromEntries(Object.entries(message).filter(([key]) => !KNOWN_FIELDS.has(key)));
  return { role: message.role, name: text(message.agent ?? message.name), blocks, rest };
}

/** Parse an item of OpenAI's Responses API that is a message by itself. */
function parseResponseItem(item) {
  if (item.type === "function_call") {
    const block = { kind: "call", id: text(item.call_id ?? item.id), name: text(item.name), input: item.arguments };
    return { role: "assistant", name: "", blocks: [block], rest: {} };
  }
  if (item.type === "function_call_output") {
    const block = { kind: "result", id: text(item.call_id), content: item.output };
    return { role: "tool", name: "", blocks: [block], rest: {} };
  }
  return null;
}

function contentBlocks(content, message) {
  if (message.tool_call_id !== undefined) {
    return [{ kind: "result", id: text(message.tool_call_id), name: text(message.name), content }];
  }
  if (content === null || content === undefined || content === "") return [];
  if (typeof content === "string") return [{ kind: "text", text: content }];
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

function partBlock(part) {
  if (typeof part === "string") return { kind: "text", text: part };
  if (!isObject(part)) return { kind: "value", value: part };
  return typedPart(part) ?? namedPart(part) ?? { kind: "value", value: part };
}

function typedPart(part) {
  const type = text(part.type);
  if (typeof part.text === "string" && (!type || type.endsWith("text"))) {
    return { kind: "text", text: part.text };
  }
  if (type === "thinking" || type === "reasoning") {
    return { kind: "thinking", text: text(part.thinking ?? part.text) };
  }
  if (["tool_use", "server_tool_use", "mcp_tool_use"].includes(type)) {
    return { kind: "call", id: text(part.id), name: text(part.name), input: part.input };
  }
  if (type.endsWith("tool_result")) {
    return { kind: "result", id: text(part.tool_use_id), content: part.content, failed: part.is_error === true };
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
