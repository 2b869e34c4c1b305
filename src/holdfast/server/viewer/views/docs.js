// The API as a page: reads openapi.json and says for each route what it takes and what it answers.

import { el, fill, byId } from "../components/dom.js";
import { get } from "../api/client.js";
import { alertOf } from "../components/notices.js";
import { exampleOf, shapeView, typeName } from "../api/json-schema.js";

const VERBS = ["get", "post", "put", "patch", "delete"];

/** The routes of an API by their tag, in its order. */
function grouped(api) {
  const groups = new Map();
  for (const [path, item] of Object.entries(api.paths)) {
    for (const verb of VERBS.filter((each) => item[each])) {
      const route = { path, verb, ...item[verb] };
      route.parameters = [...(item.parameters ?? []), ...(item[verb].parameters ?? [])];
      const tag = route.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), route]);
    }
  }
  return groups;
}

const idOf = ({ verb, path, operationId }) => `route-${operationId ?? `${verb}-${path}`}`;
const verbView = (verb) => el("span", { class: `verb verb-${verb}` }, verb.toUpperCase());

/** A description: paragraphs, with code between backticks. */
function leadView(text = "") {
  return text.split(/\n\s*\n/).map((paragraph) => el("p", { class: "lead" },
    paragraph.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part))));
}

function routeView(route, api) {
  const about = route.description ?? "";
  return el("details", { class: "card route", id: idOf(route) },
    el("summary", {}, verbView(route.verb), el("code", {}, route.path), el("span", { class: "muted" }, about.split("\n")[0])),
    about.includes("\n") && leadView(about),
    parametersView(route.parameters, api),
    bodyView(route.requestBody, api),
    answersView(route.responses, api));
}

function parametersView(parameters, api) {
  if (!parameters.length) return null;
  const head = ["Parameter", "In", "Type", ""].map((name) => el("th", { scope: "col" }, name));
  return [el("h3", {}, "Parameters"), el("div", { class: "table-box" }, el("table", {},
    el("thead", {}, el("tr", {}, head)),
    el("tbody", {}, parameters.map((each) => parameterRow(each, api)))))];
}

function parameterRow({ name, in: where, required, schema = {}, description, example }, api) {
  const shown = example ?? exampleOf(schema, api);
  return el("tr", {},
    el("td", {}, el("code", {}, name), " ", required && el("span", { class: "needed" }, "required")),
    el("td", {}, where),
    el("td", {}, el("code", {}, typeName(schema, api))),
    el("td", {}, description ?? schema.description, " ",
      (schema.default ?? null) !== null && ["Default: ", el("code", {}, plain(schema.default)), " "],
      shown !== undefined && ["Example: ", el("code", {}, plain(shown))]));
}

const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function bodyView(body, api) {
  if (!body) return null;
  return [el("h3", {}, "Body", body.required && [" ", el("span", { class: "needed" }, "required")]),
    body.description && el("p", { class: "muted" }, body.description), contentView(body.content, api)];
}

function contentView(content = {}, api) {
  return Object.entries(content).map(([type, { schema = {}, example, examples }]) => {
    const shown = example ?? Object.values(examples ?? {})[0]?.value ?? exampleOf(schema, api);
    return el("div", {}, el("p", { class: "muted" }, type), shapeView(schema, api),
      shown !== undefined && el("pre", { class: "code" }, JSON.stringify(shown, null, 2)));
  });
}

function answersView(responses = {}, api) {
  const rows = Object.entries(responses).map(([status, answer]) => {
    const name = [el("code", {}, status), " ", answer.description];
    const content = Object.keys(answer.content ?? {});
    if (!content.length || content.every((type) => type.includes("problem"))) return el("p", { class: "muted" }, name);
    const details = el("details", { open: status === "200" || status === "201" }, el("summary", {}, name));
    details.append(...contentView(answer.content, api));
    return details;
  });
  return [el("h3", {}, "Answers"), el("div", { class: "answers" }, rows)];
}

/** Open the route that the address names. */
function openNamed() {
  const wanted = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (wanted?.tagName !== "DETAILS") return;
  wanted.open = true;
  wanted.scrollIntoView();
}

try {
  const api = await get("openapi.json");
  const groups = [...grouped(api)];
  fill(byId("contents"), groups.map(([tag, routes]) => [el("h2", {}, tag), routes.map((route) =>
    el("a", { href: `#${encodeURIComponent(idOf(route))}` }, verbView(route.verb), route.path))]));
  fill(byId("routes"),
    el("h1", {}, `${api.info.title} API`, " ", el("small", { class: "muted" }, api.info.version)),
    leadView(api.info.description),
    groups.map(([tag, routes]) => [el("h2", {}, tag), routes.map((route) => routeView(route, api))]));
  openNamed();
  window.addEventListener("hashchange", openNamed);
} catch (error) {
  alertOf(error);
}
