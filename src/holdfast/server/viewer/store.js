// What the page shows. app.js creates one store and passes it to the views, which read it; only the session page
// (views/session.js) changes it.

/**
 * Create an empty store:
 * - `ref`: the open session as `{agent, session, scope}`; `session` is "" on the start page
 * - `summary`: the summary of the session, as the API returns it; null until it is loaded
 * - `snapshots`: the snapshots of the session, oldest first
 * - `view`: the name of the open tab
 * - `comparison`: the two positions that the Compare tab compares
 */
export function createStore() {
  return { ref: { agent: "", session: "", scope: null }, summary: null, snapshots: [], view: "state", comparison: {} };
}
