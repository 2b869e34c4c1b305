// The client of the REST API: URLs, the token, errors. Responses that never change (an event, the state after
// it) are cached, so stepping back and forth sends no requests.

import { LruCache } from "./cache.js";

const TOKEN_KEY = "holdfast.token";

/** An error response, or no response at all: then the status is 0. */
export class ApiError extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The server responded with status ${status}.`);
    this.status = status;
    this.hint = body.hint ?? "";
    this.errors = body.errors ?? [];
    this.conflicts = body.conflicts ?? [];
  }
}

/** Whether an error means that the request was cancelled because its result is no longer needed. */
export const isAbort = (error) => error?.name === "AbortError";

/** Return the path of a session, given as `{agent, session}`, or of a resource below it. */
export function sessionPath({ agent, session }, ...below) {
  return ["agents", agent, "sessions", session, ...below].map(encodeURIComponent).join("/");
}

export class Client {
  #cache = new LruCache(400, 24_000_000);
  #blobs = new LruCache(100, 128_000_000);
  // The pages are served from the root of the API, which may itself be mounted below a prefix.
  #base = new URL(".", document.baseURI);

  /** The token of this tab; null if there is none. */
  get token() {
    return sessionStorage.getItem(TOKEN_KEY);
  }

  set token(text) {
    if (text) sessionStorage.setItem(TOKEN_KEY, text);
    else sessionStorage.removeItem(TOKEN_KEY);
    this.clearCache();
  }

  /** Forget cached responses: a session may have been deleted and created again under the same id. */
  clearCache() {
    this.#cache.clear();
    this.#blobs.clear();
  }

  /** Return the URL of a path. Empty values are left out of the query. */
  url(path, query = {}) {
    const url = new URL(path, this.#base);
    for (const [name, value] of Object.entries(query)) {
      if (value !== null && value !== undefined && value !== "") url.searchParams.append(name, value);
    }
    return url;
  }

  /** Send a request and return its response. Throws `ApiError`. */
  async send(path, { method = "GET", query, body, headers = {}, signal } = {}) {
    const allHeaders = new Headers(headers);
    if (this.token) allHeaders.set("Authorization", `Bearer ${this.token}`);
    const isJson = body !== undefined && !(body instanceof Blob);
    if (isJson) allHeaders.set("Content-Type", "application/json");
    const response = await fetchOrFail(this.url(path, query), {
      method, headers: allHeaders, signal, body: isJson ? JSON.stringify(body) : body, cache: "no-store",
    });
    if (response.ok || response.status === 304) return response;
    throw new ApiError(response.status, await errorBody(response));
  }

  /** Get the JSON of a path. */
  async get(path, query = {}, signal = undefined) {
    return (await this.send(path, { query, signal })).json();
  }

  /** Get JSON that never changes, from the cache if possible. */
  async getImmutable(path, query = {}, signal = undefined) {
    const key = this.url(path, query).href;
    const cached = this.#cache.get(key);
    if (cached !== undefined) return cached;
    const text = await (await this.send(path, { query, signal })).text();
    const value = JSON.parse(text);
    this.#cache.put(key, value, text.length);
    return value;
  }

  /** Get bytes that never change, or the first `limit` of them, from the cache if possible. */
  async getBytes(path, query = {}, { limit = null, signal } = {}) {
    const key = `${limit ?? "all"} ${this.url(path, query).href}`;
    const cached = this.#blobs.get(key);
    if (cached !== undefined) return cached;
    const headers = limit === null ? {} : { Range: `bytes=0-${limit - 1}` };
    const bytes = new Uint8Array(await (await this.send(path, { query, headers, signal })).arrayBuffer());
    this.#blobs.put(key, bytes, bytes.length);
    return bytes;
  }
}

async function fetchOrFail(url, options) {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError(0, {
      detail: "The server does not respond.",
      hint: "Check that it is running. The page reconnects automatically.",
    });
  }
}

async function errorBody(response) {
  try {
    const body = JSON.parse(await response.text());
    return body && typeof body === "object" ? body : {};
  } catch {
    return { title: response.statusText };
  }
}
