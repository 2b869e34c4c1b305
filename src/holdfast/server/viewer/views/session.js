// The page of one session: opens it, moves between its positions, switches tabs and follows new events.
//
// One step of the slider: moveTo (timeline.js) → onMove → showPosition → loadPosition (api/position.js) → render.

import { createBlobs } from "../api/blobs.js";
import { sessionPath } from "../api/client.js";
import { createPoller } from "../api/live.js";
import { FILES, isFileEntry } from "../api/file-records.js";
import { fetchEventsAround, fetchFiles, fetchMessages, loadPosition, messageChanges } from "../api/position.js";
import { fetchSnapshots } from "../api/snapshots.js";
import { connectionStatus } from "../components/connection-status.js";
import { byId, setBusy } from "../components/dom.js";
import { closeDrawer } from "../components/drawer.js";
import { clearErrors, clearNotes, createAnnouncer, showError } from "../components/notices.js";
import { createTabs } from "../components/tabs.js";
import { createAddressBar, parseRoute } from "../route.js";
import { createActions } from "./action-buttons.js";
import { createCompareView, parseComparison } from "./compare.js";
import { createConversation } from "./conversation.js";
import { createEventCard, createEventList } from "./events.js";
import { createFilesView } from "./files.js";
import { createGrowthView } from "./growth.js";
import { createMissingEventNotice } from "./missing-event.js";
import { showSessionHeader } from "./session-header.js";
import { createSnapshotTable } from "./snapshots.js";
import { addTimelineKeys } from "./timeline-keys.js";
import { createTimeline } from "./timeline.js";
import { createValuesView } from "./values.js";

const TABS = { state: "State", files: "Files", compare: "Compare", growth: "Growth", snapshots: "Snapshots" };
const DRAG_DELAY = 150;

export function createSessionPage({ client, store, access, sidebar }) {
  let opening = new AbortController(); // cancels the requests for the open session
  let loading = new AbortController(); // cancels the requests for the position that is being loaded
  let isLoading = false;
  let moveTimer = null;
  let seenHead = 0; // events after this one are reported as new

  const blobs = () => createBlobs(client, store.ref);
  const goTo = (seq) => timeline.moveTo(seq, "jump");
  const current = () => ({ ...store.ref, seq: timeline.seq(), first: store.summary?.first_event ?? 1 });
  const writeAddress = createAddressBar();
  const announce = createAnnouncer(byId("announcer"));

  const timeline = createTimeline(byId("timeline"), { onMove });
  const conversation = createConversation(byId("conversation"), {
    fetch: (seq, offset, limit, signal) => fetchMessages(client, store.ref, seq, offset, limit, signal),
    blobs,
  });
  const eventCard = createEventCard(byId("event"), { blobs });
  const eventList = createEventList(byId("nearby-events"), { onPick: goTo });
  const missingEvent = createMissingEventNotice(byId("missing-event"), byId("session"), { onPick: goTo });
  const values = createValuesView(byId("values"), { blobs });
  const files = createFilesView(byId("view-files"), {
    blobs, fetch: (seq, signal) => fetchFiles(client, store.ref, seq, signal),
  });
  const growth = createGrowthView(byId("view-growth"), { onPick: goTo });
  const tabs = createTabs(byId("tabs"), TABS, (name) => showTab(name, { push: true }));
  const compare = createCompareView(byId("view-compare"), {
    client, current, onCompare: (comparison) => { store.comparison = comparison; updateAddress({ push: true }); },
  });
  const actions = createActions({ client, store, access, current, open: openOther, reload, leave: leaveDeleted });
  const snapshotTable = createSnapshotTable(byId("view-snapshots"), {
    access, onPick: goTo, onCompare: compareSnapshot,
    onExport: actions.exportSnapshot, onDelete: actions.deleteSnapshot,
  });
  const poller = createPoller(client, {
    onChange: (summary) => update(summary).catch(showError),
    onDeleted: (error) => {
      showError(error);
      sidebar.load();
    },
    ...connectionStatus(byId("connection"), () => poller.pollNow()),
  });
  addTimelineKeys({ isActive: () => store.summary !== null, step: (by) => timeline.moveTo(timeline.wanted() + by) });

  // -------------------------------------------------------------------------------- sessions

  /** Write the open session and position into the address. At the head, the event number is left out. */
  function updateAddress(how) {
    const at = timeline.missing() ?? (timeline.isAtHead() ? null : timeline.seq());
    const view = store.view === "state" ? null : store.view;
    writeAddress({ ...store.ref, at, view, ...(store.view === "compare" ? store.comparison : {}) }, how);
  }

  /** Open the session and position that the address names. */
  async function followAddress() {
    const route = parseRoute(location.hash);
    const { agent, session, scope = null, at } = route;
    closeDrawer();
    if (!session) {
      showStartPage(agent);
      return;
    }
    store.comparison = parseComparison(route);
    store.view = tabs.has(route.view) ? route.view : "state";
    const { ref } = store;
    const isOpen = store.summary && ref.agent === agent && ref.session === session && ref.scope === scope;
    if (isOpen) {
      timeline.setPosition(at ?? store.summary.last_event);
      await Promise.all([showPosition(), showTab(store.view, { keepAddress: true })]);
    } else await open({ agent, session, scope }, at);
  }

  /** Open another session, or this one again, at its head. */
  function openOther({ agent, session, scope = null }) {
    writeAddress({ agent, session, scope }, { push: true });
    store.ref = { agent: "", session: "", scope: null };
    sidebar.load();
    return followAddress();
  }

  async function open(ref, at) {
    opening.abort();
    opening = new AbortController();
    const { signal } = opening;
    clearErrors();
    clearNotes();
    client.clearCache();
    poller.watch(null);
    setBusy(byId("main"), true);
    Object.assign(store, { ref, summary: null, snapshots: [] });
    conversation.reset();
    timeline.setSnapshots([]);
    sidebar.showCurrent();
    try {
      const { summary, etag } = await fetchSummary(signal);
      if (signal.aborted) return;
      store.summary = summary;
      poller.watch(ref, etag, summary.last_event);
    } catch (error) {
      if (signal.aborted) return;
      byId("session").hidden = true;
      setBusy(byId("main"), false);
      showError(error);
      return;
    }
    byId("welcome").hidden = true;
    byId("session").hidden = false;
    for (const view of [files, growth, values, compare, timeline]) view.reset();
    showSessionHeader(store, actions.buttons());
    timeline.setRange(store.summary);
    timeline.setPosition(at ?? store.summary.last_event);
    markAllSeen();
    const snapshots = hasOtherSnapshots(store.summary) && loadSnapshots();
    await Promise.all([showPosition(), snapshots, showTab(store.view, { keepAddress: true })]);
  }

  async function fetchSummary(signal) {
    const response = await client.send(sessionPath(store.ref), { query: { scope: store.ref.scope }, signal });
    return { summary: await response.json(), etag: response.headers.get("ETag") };
  }

  function showStartPage(agent) {
    opening.abort();
    loading.abort();
    poller.watch(null);
    Object.assign(store, { ref: { agent, session: "", scope: null }, summary: null });
    byId("session").hidden = true;
    byId("welcome").hidden = false;
    setBusy(byId("main"), false);
    document.title = "Holdfast";
    sidebar.showCurrent();
  }

  /** Leave a session that was deleted. */
  function leaveDeleted() {
    writeAddress({ agent: store.ref.agent }, { push: true });
    showStartPage(store.ref.agent);
    sidebar.load();
  }

  async function loadSnapshots() {
    const { signal } = opening;
    try {
      await fetchSnapshots(client, store.ref, signal, (snapshots) => {
        if (signal.aborted) return;
        store.snapshots = snapshots;
        timeline.setSnapshots(snapshots);
        if (store.view === "snapshots") snapshotTable.show(snapshots);
      });
    } catch (error) {
      showError(error);
    }
  }

  // ------------------------------------------------------------------------------- positions

  /**
   * The timeline was moved. While one position is being loaded, the next of a drag is requested only when the slider
   * rests, so that the server does not load positions that are passed over.
   */
  function onMove(how) {
    clearTimeout(moveTimer);
    clearErrors();
    updateAddress({ push: how === "jump" });
    markAllSeen();
    setBusy(byId("main"), true);
    const delay = how === "drag" && isLoading ? DRAG_DELAY : 0;
    return new Promise((done) => { moveTimer = setTimeout(() => showPosition(how).then(done), delay); });
  }

  /** Load and show the position of the timeline. Requests for another position are cancelled. */
  async function showPosition(how = "step") {
    loading.abort();
    loading = new AbortController();
    const { signal } = loading;
    isLoading = timeline.missing() === null;
    setBusy(byId("main"), isLoading);
    if (!isLoading) {
      missingEvent.show(timeline.missing(), store.summary);
      return;
    }
    missingEvent.hide();
    try {
      const position = await loadPosition(client, store.ref, timeline.seq(), store.summary, signal);
      if (!signal.aborted) render(position, how);
    } catch (error) {
      if (!signal.aborted) showError(error);
    }
    if (signal.aborted) return;
    isLoading = false;
    setBusy(byId("main"), false);
  }

  function render(position, how) {
    const { seq, event, state } = position;
    const text = timeline.showEvent(event);
    if (how === "step" || how === "jump") announce(text);
    conversation.show({
      id: `${store.ref.agent}/${store.ref.session}`, seq, count: state.message_count,
      offset: state.message_offset, messages: state.state.messages, ...messageChanges(position),
    });
    eventCard.show(position);
    values.show(position);
    const hasFiles = store.summary.namespaces.includes(FILES) || position.entries.some(isFileEntry);
    tabs.setHidden("files", !hasFiles && store.view !== "files");
    files.show(position);
    eventList.show(position, store.summary);
    growth.setCurrent({ seq, at: state.at, messages: state.message_count, size_bytes: state.size_bytes });
    actions.setPosition(seq);
  }

  // ------------------------------------------------------------------------------------ tabs

  async function showTab(name, { push = false, keepAddress = false } = {}) {
    store.view = name;
    tabs.show(name);
    if (name === "state") {
      conversation.scrollIfPending();
      eventList.center();
    }
    files.setVisible(name === "files");
    if (!keepAddress) updateAddress({ push });
    try {
      if (name === "compare") await compare.show(store.comparison);
      if (name === "growth") await drawGrowth();
      if (name === "snapshots") snapshotTable.show(store.snapshots);
    } catch (error) {
      showError(error);
    }
  }

  async function drawGrowth() {
    const { signal } = opening;
    const query = { points: 300, scope: store.ref.scope };
    const { points } = await client.get(sessionPath(store.ref, "growth"), query, signal);
    if (!signal.aborted) growth.show(points, timeline.seq());
  }

  function compareSnapshot(info) {
    store.comparison = parseComparison({ from: info.snapshot_id, to: String(timeline.seq()) });
    showTab("compare", { push: true });
  }

  // ---------------------------------------------------------------------------- live updates

  /** Show a changed session: follow its head if that is shown, or if `toHead`; else stay. */
  async function update(summary, { toHead = false } = {}) {
    const before = store.summary;
    const follows = toHead || timeline.isAtHead();
    const wasMissing = timeline.missing() !== null;
    store.summary = summary;
    const isOtherLog = summary.last_event < before.last_event || summary.started_at !== before.started_at;
    if (isOtherLog) client.clearCache();
    showSessionHeader(store, actions.buttons());
    timeline.setRange(summary);
    if (hasOtherSnapshots(summary)) loadSnapshots();
    if (store.view === "growth") drawGrowth().catch(showError);
    if (follows && summary.head !== before.head) {
      timeline.setPosition(summary.last_event);
      markAllSeen();
      await showPosition("live");
      if (toHead) updateAddress({ push: true });
      return;
    }
    timeline.setNewEvents(summary.last_event - seenHead);
    if (wasMissing || timeline.missing() !== null) {
      await showPosition("live");
      return;
    }
    const seq = timeline.seq();
    const { events } = await fetchEventsAround(client, store.ref, seq, summary, opening.signal);
    eventList.show({ seq, eventsAround: events }, summary);
  }

  function markAllSeen() {
    seenHead = store.summary.last_event;
    timeline.setNewEvents(0);
  }

  function hasOtherSnapshots({ latest_snapshot: latest, snapshot_count: total }) {
    const isLatest = latest?.snapshot_id === store.snapshots.at(-1)?.snapshot_id;
    return !isLatest || (total !== null && total !== store.snapshots.length);
  }

  /** Show the result of an action without waiting for the next poll. */
  async function reload(how) {
    const { summary, etag } = await fetchSummary();
    poller.watch(store.ref, etag, summary.last_event);
    await update(summary, how);
  }

  return { followAddress, importFile: actions.importFile };
}
