// The JSON form of values, read back: what JSON cannot say is an object with one key, the tag, and a
// dict that only looks like one has a second dollar sign. Here is what each is called and holds.

const SCALARS = new Set([
  "$int", "$decimal", "$uuid", "$datetime", "$date", "$time", "$timedelta", "$bytes", "$float",
]);
const SEQUENCES = new Set(["$tuple", "$set", "$frozenset"]);

/** One segment of a JSON pointer. */
export const segment = (key) => String(key).replaceAll("~", "~0").replaceAll("/", "~1");

/** The keys of a JSON pointer. */
export const segments = (pointer) =>
  pointer.split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));

/** The value at a pointer, or undefined. */
export function at(value, pointer) {
  let found = value;
  for (const key of segments(pointer)) {
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
 * What a value is: its `type`, its `text` where it is a leaf, and otherwise how many `children` it has
 * and `child(i)`, each with its key as people read it and its pointer as the JSON form has it.
 */
export function described(value) {
  if (value === null) return { type: "none", text: "null" };
  if (typeof value !== "object") return { type: typeof value, text: String(value) };
  if (Array.isArray(value)) return sequence("list", value, "");
  const tag = tagOf(value);
  if (SCALARS.has(tag)) return { type: tag.slice(1), text: String(value[tag]) };
  if (SEQUENCES.has(tag) && Array.isArray(value[tag])) return sequence(tag.slice(1), value[tag], `/${tag}`);
  if (tag === "$map" && Array.isArray(value.$map)) return mapping(value.$map);
  if (tag === "$type" && Array.isArray(value.$type)) return registered(value.$type);
  return object(value, tag);
}

function sequence(type, items, prefix) {
  const child = (i) => ({ key: i, value: items[i], pointer: `${prefix}/${i}` });
  return { type, children: items.length, child };
}

function mapping(pairs) {
  const child = (i) => ({ key: short(pairs[i][0]), value: pairs[i][1], pointer: `/$map/${i}/1` });
  return { type: "dict", children: pairs.length, child };
}

function registered([name, content]) {
  const child = () => ({ key: "content", value: content, pointer: "/$type/1" });
  return { type: String(name), children: 1, child };
}

function object(value, tag) {
  const keys = Object.keys(value);
  const child = (i) => ({
    key: tag ? keys[i].slice(1) : keys[i], // {"$$ref": …} is a dict with the key $ref
    value: value[keys[i]],
    pointer: `/${segment(keys[i])}`,
  });
  return { type: "dict", children: keys.length, child };
}

/** A value on one line, cut where it is long. */
export function short(value, length = 60) {
  const found = described(value);
  if (found.children === undefined) {
    const text = found.type === "string" ? JSON.stringify(value) : found.text;
    return text.length > length ? `${text.slice(0, length)}…` : text;
  }
  if (found.children === 0) return found.type === "dict" ? "{}" : "[]";
  const parts = [];
  for (let i = 0, room = length; i < found.children && room > 0; i += 1) {
    const { key, value: inner } = found.child(i);
    const text = found.type === "dict" ? `${key}: ${short(inner, room)}` : short(inner, room);
    parts.push(text);
    room -= text.length;
  }
  if (parts.length < found.children) parts.push("…");
  return found.type === "dict" ? `{${parts.join(", ")}}` : `[${parts.join(", ")}]`;
}
