// The snapshots of a session.

import { sessionPath } from "./client.js";

const PAGE = 500;
const MAX_SNAPSHOTS = 10_000;

/** Fetch the snapshots of a session, oldest first; `onPage` gets those fetched so far after each request. */
export async function fetchSnapshots(client, ref, signal, onPage) {
  const snapshots = [];
  let cursor = null;
  do {
    const query = { limit: PAGE, cursor, scope: ref.scope };
    const page = await client.get(sessionPath(ref, "snapshots"), query, signal);
    snapshots.push(...page.snapshots);
    cursor = page.next_cursor;
    onPage([...snapshots]);
  } while (cursor && snapshots.length < MAX_SNAPSHOTS);
}
