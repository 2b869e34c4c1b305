// The viewer put together: one place (agent, session, step, view) is looked at, and everything on the
// page follows it. The address says which place it is.

import { get, send, sessionPath, forget } from "./api/client.js";
import { canDelete, canWrite, enter } from "./views/access.js";
import { comparison, compareView } from "./views/compare.js";
import { conversation } from "./views/conversation.js";
import { byId, setBusy } from "./components/dom.js";
import { closeDrawer } from "./components/drawer.js";
import { eventCard, eventList } from "./views/events.js";
import { timelineKeys } from "./views/timeline-keys.js";
import { linkState, live } from "./api/live.js";
import { eventsAround, loadMoment, messageChanges, messagesAt } from "./api/position.js";
import { alertOf, announce, clearAlerts, clearNotes } from "./components/notices.js";
import { outsideNotice } from "./views/missing-event.js";
import { plotView } from "./views/growth.js";
import { parsed, write } from "./route.js";
import { sessionActs } from "./views/action-buttons.js";
import { sessionHead } from "./views/session-header.js";
import { sessionList } from "./views/sessions.js";
import { allSnapshots, snapshotTable } from "./views/snapshots.js";
import { tabs } from "./components/tabs.js";
import { timeline } from "./views/timeline.js";
import { valuesView } from "./views/values.js";

const VIEWS = { moment: "This moment", compare: "Compare", growth: "Growth", snapshots: "Snapshots" };
const REST = 150;

let place = { agent: "", session: "", scope: null };
let options = {};
let view = "moment";
let summary = null;
let snapshots = [];
let opening = new AbortController();
let loading = new AbortController();

const side = sessionList(byId("side"), { current: () => place });
const line = timeline(byId("timeline"), { onMove });
const talk = conversation({ fetchMessages: (seq, from, many, signal) => messagesAt(place, seq, from, many, signal) });
const card = eventCard(byId("event"));
const around = eventList(byId("around"), { onPick: (seq) => line.move(seq, "jump") });
const outside = outsideNotice(byId("outside"), byId("session"), { onPick: (seq) => line.move(seq, "jump") });
const values = valuesView();
const plot = plotView(byId("view-growth"), { onPick: (seq) => line.move(seq, "jump") });
const views = tabs(byId("tabs"), VIEWS, (name) => show(name, { push: true }));
const here = () => ({ ...place, seq: line.seq(), first: summary?.first_event ?? 1 });
const compare = compareView(byId("view-compare"), {
  here, onCompared: (found) => { options = found; address({ push: true }); },
});
const acts = sessionActs({ here, snapshots: () => snapshots, open: goTo, reload, leave });
const table = snapshotTable(byId("view-snapshots"), {
  canWrite,
  acts: { ...acts.ofSnapshot, go: (seq) => line.move(seq, "jump"), compare: (info) => compareWith(info) },
});

// ---------------------------------------------------------------------------------- places

const buttons = () => acts.buttons({ canWrite: canWrite(), canDelete: canDelete() });
const isSame = (a, b) => a.agent === b.agent && a.session === b.session && a.scope === b.scope;

/** Write the place into the address. At the end of a session it is left open which event that is. */
function address(how) {
  const at = line.outside() ?? (line.isAtEnd() ? null : line.seq());
  write({ ...place, at, view: view === "moment" ? null : view, ...(view === "compare" ? options : {}) }, how);
}

/** Go where the address says. */
async function follow() {
  const wanted = parsed(location.hash);
  const { agent, session, scope = null, at } = wanted;
  closeDrawer();
  if (!session) {
    leavePage(agent);
    return;
  }
  options = comparison(wanted);
  view = views.has(wanted.view) ? wanted.view : "moment";
  if (summary && isSame(place, { agent, session, scope })) {
    const there = at ?? summary.last_event;
    line.place(there);
    await Promise.all([arrive(), show(view, { keep: true })]);
  } else await open({ agent, session, scope }, at);
}

/** Go to another session by its address. */
function goTo({ agent, session, scope = null }) {
  write({ agent, session, scope }, { push: true });
  place = { agent: "", session: "", scope: null };
  side.start();
  return follow();
}

async function open(wanted, at) {
  opening.abort();
  opening = new AbortController();
  const { signal } = opening;
  clearAlerts();
  clearNotes();
  forget(); // a session may have been deleted and begun anew under the same id
  watcher.watch(null);
  setBusy(byId("main"), true);
  place = wanted;
  talk.forget();
  snapshots = [];
  line.snapshots([]);
  summary = null;
  side.follow();
  try {
    const answer = await send(sessionPath(place), { query: { scope: place.scope }, signal });
    summary = await answer.json();
    if (signal.aborted) return;
    watcher.watch(place, answer.headers.get("ETag"));
  } catch (error) {
    if (signal.aborted) return;
    byId("session").hidden = true;
    setBusy(byId("main"), false);
    alertOf(error);
    return;
  }
  byId("welcome").hidden = true;
  byId("session").hidden = false;
  for (const part of [plot, values, compare, line]) part.forget();
  sessionHead(place, summary, buttons());
  line.range(summary);
  line.place(at ?? summary.last_event);
  seenEnd = summary.last_event;
  line.waiting(0);
  await Promise.all([arrive(), loadSnapshots(), show(view, { keep: true })]);
}

function leavePage(agent) {
  opening.abort();
  loading.abort();
  watcher.watch(null);
  place = { agent, session: "", scope: null };
  summary = null;
  byId("session").hidden = true;
  byId("welcome").hidden = false;
  setBusy(byId("main"), false);
  document.title = "Holdfast";
  side.follow();
}

/** The session is no more. */
function leave() {
  write({ agent: place.agent }, { push: true });
  leavePage(place.agent);
  side.start();
}

async function loadSnapshots() {
  const { signal } = opening;
  try {
    await allSnapshots(place, signal, (found) => {
      if (signal.aborted) return;
      snapshots = [...found];
      line.snapshots(snapshots);
      if (view === "snapshots") table.show(snapshots);
    });
  } catch (error) {
    alertOf(error);
  }
}

// ----------------------------------------------------------------------------------- steps

let pending = null;
let isBusy = false;
let seenEnd = 0;

/**
 * The timeline was moved. Drags come in a rush: while one step is on its way the next is asked for
 * only where the hand rests, so that a server is not asked for what nobody looks at.
 */
function onMove(seq, how) {
  clearTimeout(pending);
  clearAlerts();
  address({ push: how === "jump" });
  seenEnd = summary.last_event;
  line.waiting(0);
  const wait = how === "drag" && isBusy ? REST : 0;
  setBusy(byId("main"), true);
  return new Promise((done) => { pending = setTimeout(() => arrive(how).then(done), wait); });
}

/** Show the step that the timeline stands at. What was asked for another step is given up. */
async function arrive(how = "step") {
  loading.abort();
  loading = new AbortController();
  if (line.outside() !== null) {
    outside.show(line.outside(), summary);
    isBusy = false;
    setBusy(byId("main"), false);
    return;
  }
  outside.hide();
  isBusy = true;
  setBusy(byId("main"), true);
  const { signal } = loading;
  try {
    const moment = await loadMoment(place, line.seq(), summary, signal);
    if (!signal.aborted) draw(moment, how);
  } catch (error) {
    if (!signal.aborted) alertOf(error);
  }
  if (signal.aborted) return;
  isBusy = false;
  setBusy(byId("main"), false);
}

function draw(moment, how) {
  const text = line.tell(moment.event);
  if (how !== "play" && how !== "drag") announce(text);
  const { state } = moment;
  talk.show({
    id: `${place.agent}/${place.session}`, seq: moment.seq, count: state.message_count,
    offset: state.message_offset, messages: state.state.messages, ...messageChanges(moment),
  });
  card.show(moment);
  values.show(moment);
  around.show(moment, summary);
  plot.step({ seq: moment.seq, at: state.at, messages: state.message_count, size_bytes: state.size_bytes });
  acts.at(moment.seq);
}

// ----------------------------------------------------------------------------------- views

async function show(name, { push = false, keep = false } = {}) {
  view = name;
  views.show(name);
  if (name === "moment") {
    talk.display();
    around.center();
  }
  if (!keep) address({ push });
  try {
    if (name === "compare") await compare.show(options);
    if (name === "growth") await drawGrowth();
    if (name === "snapshots") table.show(snapshots);
  } catch (error) {
    alertOf(error);
  }
}

async function drawGrowth() {
  const { signal } = opening;
  const query = { points: 300, scope: place.scope };
  const { points } = await get(sessionPath(place, "growth"), query, signal);
  if (!signal.aborted) plot.show(points, line.seq());
}

function compareWith(info) {
  options = comparison({ from: info.snapshot_id, to: String(line.seq()) });
  show("compare", { push: true });
}

// ------------------------------------------------------------------------------------ live

const watcher = live({
  onChange: (found) => grown(found).catch(alertOf),
  ...linkState(() => watcher.now()),
  onLost: (error) => {
    alertOf(error);
    side.start();
  },
});

/** The session has changed: stay where one is, or go along where one stands at the end. */
async function grown(found, { toEnd = false } = {}) {
  const before = summary;
  const goesAlong = toEnd || line.isAtEnd();
  const wasOutside = line.outside() !== null;
  summary = found;
  if (found.last_event < before.last_event || found.started_at !== before.started_at) forget();
  sessionHead(place, summary, buttons());
  line.range(found);
  if (hasOtherSnapshots(found)) loadSnapshots();
  if (view === "growth") drawGrowth().catch(alertOf);
  if (goesAlong && found.head !== before.head) {
    line.place(found.last_event);
    seenEnd = found.last_event;
    await arrive("play");
    if (toEnd) address({ push: true });
    return;
  }
  line.waiting(found.last_event - seenEnd);
  if (wasOutside || line.outside() !== null) {
    await arrive("play");
    return;
  }
  const { events } = await eventsAround(place, line.seq(), found, opening.signal);
  around.show({ seq: line.seq(), around: events }, found);
}

function hasOtherSnapshots({ latest_snapshot: latest, snapshot_count: many }) {
  const isLatest = latest?.snapshot_id === snapshots.at(-1)?.snapshot_id;
  return !isLatest || (many !== null && many !== snapshots.length);
}

/** Look at once at what an action has done. */
async function reload(how) {
  const answer = await send(sessionPath(place), { query: { scope: place.scope } });
  watcher.watch(place, answer.headers.get("ETag"));
  await grown(await answer.json(), how);
}

// ------------------------------------------------------------------------------------ page

byId("import").addEventListener("click", () => acts.importFile());
timelineKeys({ isOn: () => summary !== null, step: (by) => line.move(line.base() + by) });
window.addEventListener("hashchange", follow);

try {
  await enter();
  await Promise.all([side.start(), follow()]);
} catch (error) {
  alertOf(error);
}
