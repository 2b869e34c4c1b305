// The one door to the server: where it is, the token, and what its errors say. Whatever never
// changes (an event, the state after it) is remembered, so that going to and fro costs nothing.

import { Recent } from "./cache.js";

/** Where the API is; the viewer's files are two levels below it, also under a prefix. */
const BASE = new URL("../..", import.meta.url);

const TOKEN = "holdfast.token";
const remembered = new Recent(400, 24_000_000);

/** What the server refused and why, in its own words. Status 0: it did not answer at all. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The server answered with status ${status}.`);
    this.status = status;
    this.title = body.title ?? "";
    this.detail = body.detail ?? "";
    this.hint = body.hint ?? "";
    this.errors = body.errors ?? [];
    this.conflicts = body.conflicts ?? [];
  }
}

export const token = () => sessionStorage.getItem(TOKEN);

export function setToken(text) {
  if (text) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
  forget();
}

/** Drop what is remembered: it may have been of something that is no more. */
export const forget = () => remembered.clear();

export function url(path, query = {}) {
  const found = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") found.searchParams.append(name, value);
  }
  return found;
}

/** The path of a session and of what is below it. */
export function sessionPath({ agent, session }, ...below) {
  const parts = ["agents", agent, "sessions", session, ...below];
  return parts.map(encodeURIComponent).join("/");
}

/** The answer of the server, or a `Problem`. */
export async function send(path, { method = "GET", query, body, headers = {}, signal } = {}) {
  const all = new Headers(headers);
  if (token()) all.set("Authorization", `Bearer ${token()}`);
  const plain = body !== undefined && !(body instanceof Blob);
  if (plain) all.set("Content-Type", "application/json");
  const answer = await answered(url(path, query), {
    method, headers: all, signal, body: plain ? JSON.stringify(body) : body, cache: "no-store",
  });
  if (answer.ok || answer.status === 304) return answer;
  throw new Problem(answer.status, await said(answer));
}

async function answered(where, how) {
  try {
    return await fetch(where, how);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, {
      title: "The server does not answer",
      detail: "The server does not answer.",
      hint: "Is it still running? The page goes on by itself when it is back.",
    });
  }
}

async function said(answer) {
  try {
    const body = JSON.parse(await answer.text());
    return body && typeof body === "object" ? body : {};
  } catch {
    return { title: answer.statusText };
  }
}

/** What a path has now. */
export async function get(path, query = {}, signal = undefined) {
  return (await send(path, { query, signal })).json();
}

/** What a path has for ever: an event, a state after an event. */
export async function getFixed(path, query = {}, signal = undefined) {
  const key = url(path, query).href;
  const known = remembered.get(key);
  if (known !== undefined) return known;
  const text = await (await send(path, { query, signal })).text();
  const value = JSON.parse(text);
  remembered.put(key, value, text.length);
  return value;
}

/** Whether an error says only that nobody waits for the answer any more. */
export const isAbort = (error) => error?.name === "AbortError";
