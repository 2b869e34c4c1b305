// Live updates of the open session, while the page is visible. A stream of its events tells when there is something
// new, and then its summary is fetched. Without a stream, because the server refuses it or does not respond, the summary
// is polled. An unchanged session costs a 304 response; while the server does not respond, the interval grows.

import { isAbort, sessionPath } from "./client.js";
import { readEvents } from "./event-stream.js";

const INTERVAL = 2000;
const MAX_INTERVAL = 30_000;
/** How often to poll beside a stream: a snapshot may be saved without an event. */
const STREAMING_INTERVAL = 30_000;
/** The shortest time between two requests for the summary, however many events there are. */
const MIN_GAP = 400;
/** How long to poll before another attempt to stream; doubled after each failure. */
const FIRST_PAUSE = 2000;
const MAX_PAUSE = 60_000;

/**
 * Create a poller. `onChange(summary)` is called when the session has changed, `onDeleted(error)` when it no longer
 * exists, `onOffline(error, wait)` after a failed request, `onOnline()` when requests succeed again.
 */
export function createPoller(client, { onChange, onDeleted, onOffline, onOnline }) {
  let ref = null;
  let etag = null;
  let seq = null;
  let wait = INTERVAL;
  let timer = null;
  let polledAt = 0;
  let isPolling = false;
  let isStale = false;
  let stop = new AbortController();
  const stream = createStream(client, {
    onEvent: (event) => { if (event.name !== "event" || event.data.seq > seq) pollSoon(); },
    onEnd: () => schedule(),
  });

  function schedule(delay = stream.isOpen() && wait === INTERVAL ? STREAMING_INTERVAL : wait) {
    clearTimeout(timer);
    if (ref && !document.hidden) timer = setTimeout(poll, delay);
  }

  /** Poll because of an event; events that come together cause one request. */
  function pollSoon() {
    isStale = true;
    if (!isPolling) schedule(Math.max(0, polledAt + MIN_GAP - Date.now()));
  }

  async function poll() {
    const { signal } = stop;
    isPolling = true;
    isStale = false;
    polledAt = Date.now();
    try {
      const headers = etag ? { "If-None-Match": etag } : {};
      const response = await client.send(sessionPath(ref), { query: { scope: ref.scope }, headers, signal });
      if (wait > INTERVAL) onOnline();
      wait = INTERVAL;
      if (response.status !== 304) {
        etag = response.headers.get("ETag");
        const summary = await response.json();
        if (!signal.aborted) {
          seq = summary.last_event;
          onChange(summary);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 404) {
        ref = null;
        stream.close();
        onDeleted(error);
        return;
      }
      wait = Math.min(wait * 2, MAX_INTERVAL);
      onOffline(error, wait);
    } finally {
      if (!signal.aborted) isPolling = false;
    }
    if (signal.aborted) return;
    if (wait === INTERVAL && !document.hidden) stream.open(ref, seq);
    if (isStale) pollSoon();
    else schedule();
  }

  function pollNow() {
    clearTimeout(timer);
    if (ref) poll();
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      // A browser has six connections to a server, for all its tabs.
      clearTimeout(timer);
      stream.close();
    } else pollNow();
  });

  return {
    pollNow,
    /** Watch a session from the version with this ETag and last event on; null stops it. */
    watch(watched, seenEtag = null, lastEvent = null) {
      stop.abort();
      stop = new AbortController();
      stream.close();
      [ref, etag, seq, wait, isPolling, isStale] = [watched, seenEtag, lastEvent, INTERVAL, false, false];
      schedule();
    },
  };
}

/** A stream of the events of one session, which is opened again after a pause when it ends. */
function createStream(client, { onEvent, onEnd }) {
  let stop = null;
  let isConnected = false;
  let pause = FIRST_PAUSE;
  let notBefore = 0;

  async function run(ref, after, signal) {
    try {
      const query = { scope: ref.scope, after, brief: true };
      const response = await client.send(sessionPath(ref, "events", "stream"), { query, signal });
      isConnected = true;
      await readEvents(response, (event) => {
        pause = FIRST_PAUSE;
        onEvent(event);
      });
    } catch (error) {
      if (signal.aborted || isAbort(error)) return;
    }
    if (signal.aborted) return;
    // The server has ended it or refuses it, or the connection was lost: polling shows which.
    close();
    notBefore = Date.now() + pause;
    pause = Math.min(2 * pause, MAX_PAUSE);
    onEnd();
  }

  function close() {
    stop?.abort();
    stop = null;
    isConnected = false;
  }

  return {
    close,
    isOpen: () => isConnected,
    /** Open the stream after an event, unless it is open or has failed just now. */
    open(ref, after) {
      if (stop || after === null || Date.now() < notBefore) return;
      stop = new AbortController();
      run(ref, after, stop.signal);
    },
  };
}
