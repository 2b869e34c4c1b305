// Live updates: polls the summary of the open session while the page is visible. An unchanged session costs a
// 304 response; while the server does not respond, the interval grows.

import { sessionPath } from "./client.js";

const INTERVAL = 2000;
const MAX_INTERVAL = 30_000;

/**
 * Create a poller. `onChange(summary)` is called when the session has changed, `onDeleted(error)` when it no longer
 * exists, `onOffline(error, wait)` after a failed request, `onOnline()` when requests succeed again.
 */
export function createPoller(client, { onChange, onDeleted, onOffline, onOnline }) {
  let ref = null;
  let etag = null;
  let wait = INTERVAL;
  let timer = null;
  let stop = new AbortController();

  function schedule() {
    clearTimeout(timer);
    if (ref && !document.hidden) timer = setTimeout(poll, wait);
  }

  async function poll() {
    const { signal } = stop;
    try {
      const headers = etag ? { "If-None-Match": etag } : {};
      const response = await client.send(sessionPath(ref), { query: { scope: ref.scope }, headers, signal });
      if (wait > INTERVAL) onOnline();
      wait = INTERVAL;
      if (response.status !== 304) {
        etag = response.headers.get("ETag");
        const summary = await response.json();
        if (!signal.aborted) onChange(summary);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 404) {
        ref = null;
        onDeleted(error);
        return;
      }
      wait = Math.min(wait * 2, MAX_INTERVAL);
      onOffline(error, wait);
    }
    schedule();
  }

  function pollNow() {
    clearTimeout(timer);
    if (ref) poll();
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else pollNow();
  });

  return {
    pollNow,
    /** Watch a session from the version with this ETag on; null stops polling. */
    watch(watched, seenEtag = null) {
      stop.abort();
      stop = new AbortController();
      [ref, etag, wait] = [watched, seenEtag, INTERVAL];
      schedule();
    },
  };
}
