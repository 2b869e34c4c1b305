// A line at the top of the page while the server does not respond.

import { button, el, fill } from "./dom.js";

/** Return the callbacks of a poller that show and clear the line. */
export function connectionStatus(node, retryNow) {
  return {
    onOnline: () => fill(node),
    onOffline: (error, wait) => {
      const reason = error.status === 0 ? "The server does not respond" : error.message;
      const text = `${reason}; retrying in ${Math.round(wait / 1000)} s. `;
      fill(node, el("span", { class: "offline" }, text), button("Retry now", retryNow, { class: "quiet small" }));
    },
  };
}
