// The session at one position: the state after the event, the event, what it changed, and the events around it.
// None of it ever changes, so each part is fetched once and cached.

import { sessionPath } from "./client.js";
import { FILES, isFileRecord } from "./file-records.js";

/** Messages fetched at once. */
export const MESSAGE_PAGE = 50;
const EVENT_BLOCK = 100;

/**
 * Load everything that is shown at the event `seq`. If the event was pruned, only the state after it is known.
 * `entries` are the entries of the state that the event changed.
 */
export async function loadPosition(client, ref, seq, summary, signal) {
  const { scope } = ref;
  const lastMessages = { ...messageWindow(seq, -MESSAGE_PAGE, MESSAGE_PAGE), scope };
  const changes = { from: seq - 1, to: seq, patch: false, scope };
  const isKept = seq >= summary.first_event;
  const [state, keptEvent, diff, block] = await Promise.all([
    client.getImmutable(sessionPath(ref, "state"), lastMessages, signal),
    isKept && client.getImmutable(sessionPath(ref, "events", seq), { scope }, signal),
    isKept && client.getImmutable(sessionPath(ref, "diff"), changes, signal).catch(ignoreNotFound),
    fetchEventsAround(client, ref, seq, summary, signal),
  ]);
  const event = keptEvent || { seq, type: "pruned", at: state.at, data: null, changes: null };
  return { seq, state, event, entries: diff?.entries ?? entriesOf(event), eventsAround: block.events };
}

/** Fetch the block of events around one, without their data. */
export function fetchEventsAround(client, ref, seq, summary, signal) {
  const { first, last } = blockAround(seq, summary);
  const query = { first, last, limit: EVENT_BLOCK, brief: true, scope: ref.scope };
  return client.getImmutable(sessionPath(ref, "events"), query, signal);
}

/** The files of a workspace may be many, and are fetched on their own. */
const messageWindow = (seq, offset, limit) =>
  ({ at: seq, message_offset: offset, message_limit: limit, without: FILES });

/** Fetch the records of the files after the event `seq`, by path. */
export async function fetchFiles(client, ref, seq, signal) {
  const query = { at: seq, message_limit: 0, scope: ref.scope };
  const { state } = await client.getImmutable(sessionPath(ref, "state"), query, signal);
  return Object.fromEntries(Object.entries(state.namespaces?.[FILES] ?? {}).filter(([, value]) => isFileRecord(value)));
}

/** Fetch some messages of the conversation after the event `seq`. */
export async function fetchMessages(client, ref, seq, offset, limit, signal) {
  const query = { ...messageWindow(seq, offset, limit), scope: ref.scope };
  return (await client.getImmutable(sessionPath(ref, "state"), query, signal)).state.messages;
}

/**
 * Return the first and last event of the block to show around one. Blocks overlap by half, and the one is chosen in
 * which the event is not near an end, so that it has neighbours on both sides.
 */
function blockAround(seq, { first_event: first, last_event: last }) {
  const half = EVENT_BLOCK / 2;
  const start = Math.max(0, Math.floor((seq - 1 - half / 2) / half) * half) + 1;
  return { first: Math.max(start, first), last: Math.min(start + EVENT_BLOCK - 1, last) };
}

/** The state before the first kept event may have been pruned; its diff is not found. */
function ignoreNotFound(error) {
  if (error.status !== 404) throw error;
  return null;
}

/** The changes of an event as entries of a diff, without the values before. */
function entriesOf({ changes }) {
  return [
    ...(changes?.set ?? []).map(([namespace, key, after]) => ({ namespace, key, kind: "changed", after })),
    ...(changes?.delete ?? []).map(([namespace, key]) => ({ namespace, key, kind: "removed" })),
  ];
}

/** Return which messages the event added or changed, by index, and how many it removed. */
export function messageChanges({ entries, state }) {
  const touched = entries.filter(({ namespace }) => namespace === "messages");
  const kinds = new Map();
  for (const { key, kind } of touched) {
    const index = kind === "removed" ? -1 : messageIndex(key, state);
    if (index >= 0) kinds.set(index, kind);
  }
  const removed = touched.filter(({ kind }) => kind === "removed").length;
  return { kinds, removed, isUnchanged: !touched.length };
}

function messageIndex(key, { state, message_offset: offset }) {
  const keys = state.message_keys;
  const found = keys ? keys.indexOf(key) : -1;
  if (found >= 0) return found + offset;
  // Not among the fetched messages. Keys that count from 0 without gaps are indexes.
  const isCounted = !keys || Number(keys[0]) === offset;
  return isCounted && /^\d{12}$/.test(key) ? Number(key) : -1;
}
