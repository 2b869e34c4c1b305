// JSON Schema for people: the name of a type, its fields, and an example of it.

import { el } from "../components/dom.js";

const DEEPEST = 6;

function resolved(schema, api) {
  let found = schema;
  for (let hops = 0; found?.$ref && hops < 10; hops += 1) {
    found = found.$ref.split("/").slice(1).reduce((part, key) => part?.[key], api);
  }
  return found ?? {};
}

const choices = (schema) => schema.anyOf ?? schema.oneOf ?? null;
const isNull = (schema) => schema.type === "null";

/** What a type is called: text, list of Event, number or null. */
export function typeName(schema, api) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (choices(schema)) return choices(schema).map((each) => typeName(each, api)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" or ");
  if (schema.type === "array") {
    if (schema.prefixItems) return `[${schema.prefixItems.map((each) => typeName(each, api)).join(", ")}]`;
    return `list of ${typeName(schema.items ?? {}, api)}`;
  }
  if (schema.type === "object" && typeof schema.additionalProperties === "object") {
    return `object of ${typeName(schema.additionalProperties, api)}`;
  }
  return schema.type ?? "anything";
}

/** The object inside a type, if there is one: itself, the items of a list, the one that is not null. */
function inner(schema, api) {
  const found = resolved(schema, api);
  if (found.properties) return found;
  if (found.type === "array" && found.items) return inner(found.items, api);
  const others = (choices(found) ?? []).filter((each) => !isNull(each));
  return others.length ? inner(others[0], api) : null;
}

/** The fields of a type, and those inside of them. */
export function shapeView(schema, api, seen = []) {
  const found = inner(schema, api);
  if (!found || seen.includes(found) || seen.length > DEEPEST) return null;
  const required = new Set(found.required ?? []);
  return el("div", { class: "shape" }, Object.entries(found.properties).map(([name, field]) => el("div", {},
    el("span", { class: "tree-key" }, name), required.has(name) ? "" : "?", ": ",
    el("span", { class: "leaf-number" }, typeName(field, api)), " ",
    el("span", { class: "muted" }, field.description),
    shapeView(field, api, [...seen, found]))));
}

/** An example of a type: its own, or one put together of those of its fields. */
export function exampleOf(schema, api, depth = 0) {
  const found = resolved(schema, api);
  if (found.example !== undefined) return found.example;
  if (found.examples?.length) return found.examples[0];
  if (depth > DEEPEST) return undefined;
  const others = (choices(found) ?? []).filter((each) => !isNull(each));
  if (others.length) return exampleOf(others[0], api, depth + 1);
  if (found.type === "array" && found.items) {
    const item = exampleOf(found.items, api, depth + 1);
    return item === undefined ? undefined : [item];
  }
  return found.properties ? objectExample(found, api, depth) : undefined;
}

function objectExample(found, api, depth) {
  const made = {};
  for (const [name, field] of Object.entries(found.properties)) {
    const value = exampleOf(field, api, depth + 1);
    if (value !== undefined) made[name] = value;
  }
  return Object.keys(made).length ? made : undefined;
}
