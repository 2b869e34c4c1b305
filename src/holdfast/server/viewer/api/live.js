// Keeping up with an agent that is running: asks for the summary every two seconds while the page is
// seen, and hears "nothing new" in a few bytes. When the server is gone it says so and waits longer.

import { send, sessionPath } from "./client.js";
import { byId, button, el, fill } from "../components/dom.js";

const EVERY = 2000;
const AT_MOST = 30_000;

export function live({ onChange, onGone, onBack, onLost }) {
  let place = null;
  let etag = null;
  let wait = EVERY;
  let timer = null;
  let stop = new AbortController();

  function schedule() {
    clearTimeout(timer);
    if (place && !document.hidden) timer = setTimeout(look, wait);
  }

  async function look() {
    const { signal } = stop;
    try {
      const headers = etag ? { "If-None-Match": etag } : {};
      const answer = await send(sessionPath(place), { query: { scope: place.scope }, headers, signal });
      if (wait > EVERY) onBack();
      wait = EVERY;
      if (answer.status !== 304) {
        etag = answer.headers.get("ETag");
        const summary = await answer.json();
        if (!signal.aborted) onChange(summary);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 404) {
        place = null;
        onLost(error);
        return;
      }
      wait = Math.min(wait * 2, AT_MOST);
      onGone(error, wait);
    }
    schedule();
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (place) now();
  });

  /** Look at once. */
  function now() {
    clearTimeout(timer);
    if (place) look();
  }

  return {
    now,
    /** Watch a session, of which this ETag was seen; null: none. */
    watch(wanted, seen = null) {
      stop.abort();
      stop = new AbortController();
      [place, etag, wait] = [wanted, seen, EVERY];
      schedule();
    },
  };
}

/** Says at the top of the page when the server is gone, and takes it back. */
export function linkState(tryNow) {
  const line = byId("link-state");
  return {
    onBack: () => fill(line),
    onGone: (error, wait) => {
      const why = error.status === 0 ? "The server does not answer" : error.message;
      const text = `${why}; trying again in ${Math.round(wait / 1000)} s. `;
      fill(line, el("span", { class: "gone" }, text), button("Try now", tryNow, { class: "quiet small" }));
    },
  };
}
