// The API documentation: the routes of openapi.json with their parameters, bodies and responses.

import { Client } from "../api/client.js";
import { exampleOf, objectIn, typeName } from "../api/json-schema.js";
import { byId, el, fill } from "../components/dom.js";
import { showError } from "../components/notices.js";
import { initTheme } from "../components/theme.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const MAX_DEPTH = 6;

/** Return the routes of an API by tag. */
function groupRoutes(api) {
  const groups = new Map();
  for (const [path, item] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((each) => item[each])) {
      const route = { path, method, ...item[method] };
      route.parameters = [...(item.parameters ?? []), ...(item[method].parameters ?? [])];
      const tag = route.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), route]);
    }
  }
  return groups;
}

const idOf = ({ method, path, operationId }) => `route-${operationId ?? `${method}-${path}`}`;
const methodLabel = (method) => el("span", { class: `method method-${method}` }, method.toUpperCase());

/** Return the paragraphs of a description, with code between backticks. */
function description(text = "") {
  return text.split(/\n\s*\n/).map((paragraph) => el("p", { class: "lead" },
    paragraph.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part))));
}

function routeDetails(route, api) {
  const text = route.description ?? "";
  return el("details", { class: "card route", id: idOf(route) },
    el("summary", {}, methodLabel(route.method), el("code", {}, route.path),
      el("span", { class: "muted" }, text.split("\n")[0])),
    text.includes("\n") && description(text),
    parametersTable(route.parameters, api),
    bodyDetails(route.requestBody, api),
    responseList(route.responses, api));
}

function parametersTable(parameters, api) {
  if (!parameters.length) return null;
  const head = ["Parameter", "In", "Type", "Description"].map((name) => el("th", { scope: "col" }, name));
  return [el("h3", {}, "Parameters"), el("div", { class: "table-box" }, el("table", {},
    el("thead", {}, el("tr", {}, head)),
    el("tbody", {}, parameters.map((each) => parameterRow(each, api)))))];
}

function parameterRow({ name, in: where, required, schema = {}, description: text, example }, api) {
  const shownExample = example ?? exampleOf(schema, api);
  return el("tr", {},
    el("td", {}, el("code", {}, name), " ", required && el("span", { class: "required" }, "required")),
    el("td", {}, where),
    el("td", {}, el("code", {}, typeName(schema))),
    el("td", {}, text ?? schema.description, " ",
      (schema.default ?? null) !== null && ["Default: ", el("code", {}, plain(schema.default)), " "],
      shownExample !== undefined && ["Example: ", el("code", {}, plain(shownExample))]));
}

const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function bodyDetails(body, api) {
  if (!body) return null;
  return [el("h3", {}, "Body", body.required && [" ", el("span", { class: "required" }, "required")]),
    body.description && el("p", { class: "muted" }, body.description), contentTypes(body.content, api)];
}

function contentTypes(content = {}, api) {
  return Object.entries(content).map(([type, { schema = {}, example, examples }]) => {
    const shownExample = example ?? Object.values(examples ?? {})[0]?.value ?? exampleOf(schema, api);
    return el("div", {}, el("p", { class: "muted" }, type), fieldList(schema, api),
      shownExample !== undefined && el("pre", { class: "code" }, JSON.stringify(shownExample, null, 2)));
  });
}

/** Return the fields of the object in a schema, and those inside them. */
function fieldList(schema, api, parents = []) {
  const object = objectIn(schema, api);
  if (!object || parents.includes(object) || parents.length > MAX_DEPTH) return null;
  const required = new Set(object.required ?? []);
  return el("div", { class: "schema-fields" }, Object.entries(object.properties).map(([name, field]) => el("div", {},
    el("span", { class: "tree-key" }, name), required.has(name) ? "" : "?", ": ",
    el("span", { class: "leaf-number" }, typeName(field)), " ",
    el("span", { class: "muted" }, field.description),
    fieldList(field, api, [...parents, object]))));
}

function responseList(responses = {}, api) {
  const rows = Object.entries(responses).map(([status, response]) => {
    const name = [el("code", {}, status), " ", response.description];
    const content = Object.keys(response.content ?? {});
    if (!content.length || content.every((type) => type.includes("problem"))) return el("p", { class: "muted" }, name);
    const details = el("details", { open: status === "200" || status === "201" }, el("summary", {}, name));
    details.append(...contentTypes(response.content, api));
    return details;
  });
  return [el("h3", {}, "Responses"), el("div", { class: "responses" }, rows)];
}

/** Open the route that the address names. */
function openRoute() {
  const details = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (details?.tagName !== "DETAILS") return;
  details.open = true;
  details.scrollIntoView();
}

async function start() {
  initTheme();
  const api = await new Client().get("openapi.json");
  const groups = [...groupRoutes(api)];
  fill(byId("contents"), groups.map(([tag, routes]) => [el("h2", {}, tag), routes.map((route) =>
    el("a", { href: `#${encodeURIComponent(idOf(route))}` }, methodLabel(route.method), route.path))]));
  fill(byId("routes"),
    el("h1", {}, `${api.info.title} API`, " ", el("small", { class: "muted" }, api.info.version)),
    description(api.info.description),
    groups.map(([tag, routes]) => [el("h2", {}, tag), routes.map((route) => routeDetails(route, api))]));
  openRoute();
  window.addEventListener("hashchange", openRoute);
}

start().catch(showError);
