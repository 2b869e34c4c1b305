// JSON Schema as OpenAPI uses it: names of types, and examples.

const MAX_DEPTH = 6;

function resolve(schema, api) {
  let resolved = schema;
  for (let hops = 0; resolved?.$ref && hops < 10; hops += 1) {
    resolved = resolved.$ref.split("/").slice(1).reduce((part, key) => part?.[key], api);
  }
  return resolved ?? {};
}

const alternatives = (schema) => schema.anyOf ?? schema.oneOf ?? [];
const notNull = (schemas) => schemas.filter(({ type }) => type !== "null");

/** Return the name of a type: "string", "list of Event", "integer or null". */
export function typeName(schema) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (alternatives(schema).length) return alternatives(schema).map(typeName).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.type === "array") {
    if (schema.prefixItems) return `[${schema.prefixItems.map(typeName).join(", ")}]`;
    return `list of ${typeName(schema.items ?? {})}`;
  }
  if (schema.type === "object" && typeof schema.additionalProperties === "object") {
    return `object of ${typeName(schema.additionalProperties)}`;
  }
  return schema.type ?? "any";
}

/** Return the object in a type: itself, the items of a list, the first alternative to null; or null. */
export function objectIn(schema, api) {
  const resolved = resolve(schema, api);
  if (resolved.properties) return resolved;
  if (resolved.type === "array" && resolved.items) return objectIn(resolved.items, api);
  const [first] = notNull(alternatives(resolved));
  return first ? objectIn(first, api) : null;
}

/** Return an example of a type, its own or one built from those of its fields; undefined if there is none. */
export function exampleOf(schema, api, depth = 0) {
  const resolved = resolve(schema, api);
  if (resolved.example !== undefined) return resolved.example;
  if (resolved.examples?.length) return resolved.examples[0];
  if (depth > MAX_DEPTH) return undefined;
  const [first] = notNull(alternatives(resolved));
  if (first) return exampleOf(first, api, depth + 1);
  if (resolved.type === "array" && resolved.items) {
    const item = exampleOf(resolved.items, api, depth + 1);
    return item === undefined ? undefined : [item];
  }
  return resolved.properties ? objectExample(resolved, api, depth) : undefined;
}

function objectExample({ properties }, api, depth) {
  const example = {};
  for (const [name, field] of Object.entries(properties)) {
    const value = exampleOf(field, api, depth + 1);
    if (value !== undefined) example[name] = value;
  }
  return Object.keys(example).length ? example : undefined;
}
