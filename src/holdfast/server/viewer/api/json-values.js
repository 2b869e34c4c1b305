// The JSON encoding of values. What JSON cannot express is an object with one key, the tag, as in {"$decimal":
// "1.50"}; a dict that looks like one has a second dollar sign.

import { describeReference, parseReference } from "./references.js";

const SCALARS = new Set([
  "$int", "$decimal", "$uuid", "$datetime", "$date", "$time", "$timedelta", "$bytes", "$float",
]);
const SEQUENCES = new Set(["$tuple", "$set", "$frozenset"]);

/** Escape a key as one segment of a JSON pointer. */
export const escapeSegment = (key) => String(key).replaceAll("~", "~0").replaceAll("/", "~1");

/** Return the keys of a JSON pointer. */
export const pointerKeys = (pointer) =>
  pointer.split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));

/** Return the value at a JSON pointer, or undefined. */
export function valueAt(value, pointer) {
  let found = value;
  for (const key of pointerKeys(pointer)) {
    if (found === null || typeof found !== "object") return undefined;
    found = Object.hasOwn(found, key) ? found[key] : undefined;
  }
  return found;
}

const tagOf = (value) => {
  const keys = Object.keys(value);
  return keys.length === 1 && keys[0].startsWith("$") ? keys[0] : null;
};

/**
 * Describe a value: its `type`, and the `text` of a leaf or the number of `children` of a collection. `child(i)`
 * returns the key and value of a child, and its JSON pointer in the encoded value. A large value or an attachment is a
 * leaf with its `reference`.
 */
export function describeValue(value) {
  if (value === null) return { type: "none", text: "null" };
  if (typeof value !== "object") return { type: typeof value, text: String(value) };
  if (Array.isArray(value)) return describeSequence("list", value, "");
  const tag = tagOf(value);
  if (SCALARS.has(tag)) return { type: tag.slice(1), text: String(value[tag]) };
  if (SEQUENCES.has(tag) && Array.isArray(value[tag])) return describeSequence(tag.slice(1), value[tag], `/${tag}`);
  if (tag === "$map" && Array.isArray(value.$map)) return describeMap(value.$map);
  if (tag === "$type" && Array.isArray(value.$type)) return describeRegistered(value.$type);
  const reference = tag === null ? null : parseReference(value);
  if (reference) {
    return { type: reference.mediaType ?? reference.kind, text: describeReference(reference), reference };
  }
  return describeObject(value, tag);
}

function describeSequence(type, items, prefix) {
  const child = (i) => ({ key: i, value: items[i], pointer: `${prefix}/${i}` });
  return { type, children: items.length, child };
}

function describeMap(pairs) {
  const child = (i) => ({ key: previewValue(pairs[i][0]), value: pairs[i][1], pointer: `/$map/${i}/1` });
  return { type: "dict", children: pairs.length, child };
}

function describeRegistered([name, content]) {
  const child = () => ({ key: "content", value: content, pointer: "/$type/1" });
  return { type: String(name), children: 1, child };
}

function describeObject(value, tag) {
  const keys = Object.keys(value);
  const child = (i) => ({
    key: tag ? keys[i].slice(1) : keys[i], // {"$$ref": …} is a dict with the key $ref
    value: value[keys[i]],
    pointer: `/${escapeSegment(keys[i])}`,
  });
  return { type: "dict", children: keys.length, child };
}

/** Whether a value is a collection, also an empty one. */
export const isCollection = (value) => value !== undefined && describeValue(value).children !== undefined;

/** Return a value on one line, truncated to about `length` characters. */
export function previewValue(value, length = 60) {
  const described = describeValue(value);
  if (described.children === undefined) {
    if (described.reference) return `<${described.type}, ${described.text}>`;
    const text = described.type === "string" ? JSON.stringify(value) : described.text;
    return text.length > length ? `${text.slice(0, length)}…` : text;
  }
  if (described.children === 0) return described.type === "dict" ? "{}" : "[]";
  const parts = [];
  for (let i = 0, room = length; i < described.children && room > 0; i += 1) {
    const { key, value: inner } = described.child(i);
    const text = described.type === "dict" ? `${key}: ${previewValue(inner, room)}` : previewValue(inner, room);
    parts.push(text);
    room -= text.length;
  }
  if (parts.length < described.children) parts.push("…");
  return described.type === "dict" ? `{${parts.join(", ")}}` : `[${parts.join(", ")}]`;
}
