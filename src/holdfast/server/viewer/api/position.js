// All that is needed to show one step: the state after the event, the event, what it changed, and
// the events around it. All of it is fixed for ever, so it is fetched once and remembered.

import { getFixed, sessionPath } from "./client.js";
import { STRETCH } from "../views/conversation.js";
import { Marks } from "../components/changes.js";

const BLOCK = 100;

/**
 * The block of events to show around one: its first and last number. Blocks overlap by half, and the one
 * is taken in which the event is not near an end, so that there are neighbours on both sides.
 */
function blockOf(seq, { first_event: first, last_event: last }) {
  const half = BLOCK / 2;
  const start = Math.max(0, Math.floor((seq - 1 - half / 2) / half) * half) + 1;
  return { first: Math.max(start, first), last: Math.min(start + BLOCK - 1, last) };
}

/** The events of the block around a number, without their values. */
export function eventsAround(place, seq, summary, signal) {
  const { first, last } = blockOf(seq, summary);
  const query = { first, last, limit: BLOCK, brief: true, scope: place.scope };
  return getFixed(sessionPath(place, "events"), query, signal);
}

/** Some messages of the conversation after an event. */
export async function messagesAt(place, seq, offset, limit, signal) {
  const query = { at: seq, message_offset: offset, message_limit: limit, scope: place.scope };
  return (await getFixed(sessionPath(place, "state"), query, signal)).state.messages;
}

/** Everything about the step `seq`. Where its event was pruned, the state after it is all there is. */
export async function loadMoment(place, seq, summary, signal) {
  const { scope } = place;
  const window = { at: seq, message_offset: -STRETCH, message_limit: STRETCH, scope };
  const between = { from: seq - 1, to: seq, patch: false, scope };
  const isThere = seq >= summary.first_event;
  const [state, event, diff, around] = await Promise.all([
    getFixed(sessionPath(place, "state"), window, signal),
    isThere && getFixed(sessionPath(place, "events", seq), { scope }, signal),
    isThere && getFixed(sessionPath(place, "diff"), between, signal).catch(unlessGone),
    eventsAround(place, seq, summary, signal),
  ]);
  const told = event || { seq, type: "pruned", at: state.at, data: null, changes: null };
  const entries = diff?.entries ?? bareEntries(told);
  return { seq, state, event: told, entries, around: around.events, marks: new Marks(entries) };
}

/** The state before the first event that is left may have been pruned with those before. */
function unlessGone(error) {
  if (error.status !== 404) throw error;
  return null;
}

function bareEntries({ changes }) {
  return [
    ...(changes?.set ?? []).map(([namespace, key, after]) => ({ namespace, key, kind: "changed", after })),
    ...(changes?.delete ?? []).map(([namespace, key]) => ({ namespace, key, kind: "removed" })),
  ];
}

/** What the step did to messages, by their place in the conversation, and how many it took away. */
export function messageChanges({ entries, state }) {
  const touched = entries.filter(({ namespace }) => namespace === "messages");
  const kinds = new Map();
  for (const { key, kind } of touched) {
    const index = kind === "removed" ? -1 : placeOf(key, state);
    if (index >= 0) kinds.set(index, kind);
  }
  const removed = touched.filter(({ kind }) => kind === "removed").length;
  return { kinds, removed, untouched: !touched.length };
}

function placeOf(key, { state, message_offset: offset }) {
  const keys = state.message_keys;
  const found = keys ? keys.indexOf(key) : -1;
  if (found >= 0) return found + offset;
  // Beyond the window: where keys are counted from 0 without gaps, a key tells its place.
  const isCounted = !keys || Number(keys[0]) === offset;
  return isCounted && /^\d{12}$/.test(key) ? Number(key) : -1;
}
