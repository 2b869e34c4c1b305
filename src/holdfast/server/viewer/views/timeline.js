// The timeline: a slider over all events, marks for snapshots above it, buttons for steps, and play. It moves at
// once; the position it moves to is loaded after that. If an event is requested that is not in the log, the slider
// stands at the nearest end and says so.

import { button, el, fill } from "../components/dom.js";
import { clock, count, dayAndClock, plural } from "../components/format.js";
import { icon } from "../components/icons.js";
import { createSnapshotMarks } from "./snapshot-marks.js";

const SPEEDS = [["1/s", 1000], ["4/s", 250], ["20/s", 50]];
const PAGE_STEP = 10;

/**
 * Create the timeline. `onMove(how)` shows the position moved to and resolves when that is done; `how` is "step",
 * "jump", "drag" or "play".
 */
export function createTimeline(root, { onMove }) {
  const slider = el("input", { type: "range", step: "1", id: "slider", class: "slider" });
  const label = el("label", { for: "slider", class: "visually-hidden" }, "Event");
  const number = el("input", { type: "number", class: "jump", "aria-label": "Event number" });
  const total = el("span", { class: "muted" });
  const eventInfo = el("span", { class: "event-info" });
  const newEvents = button("", () => moveTo(Number(slider.max), "jump"), { class: "new-events", hidden: true });
  const marks = createSnapshotMarks({ onPick: (seq) => moveTo(seq, "jump") });
  const stepButton = (iconName, name, by) =>
    button(icon(iconName), () => moveTo(wanted() + by), { "aria-label": name, title: name });
  const first = stepButton("first", "First event", -Infinity);
  const back = stepButton("back", "Previous event", -1);
  const next = stepButton("next", "Next event", 1);
  const last = stepButton("last", "Last event", Infinity);
  const play = button("Play", () => (playback ? pause() : start()), { "aria-pressed": "false", class: "play" });
  const speed = el("select", { "aria-label": "Speed in events per second", title: "Speed in events per second" },
    SPEEDS.map(([text, delay]) => el("option", { value: delay }, text)));
  let playback = null; // identifies the running playback
  let shownEvent = null;
  let shown = Promise.resolve();
  let missing = null; // what was requested, if it is not in the log

  const seq = () => Number(slider.value);
  const wanted = () => (typeof missing === "number" ? missing : seq());
  const nearest = (at) => Math.min(Math.max(at, Number(slider.min)), Number(slider.max));

  /** Move to an event and show it. Steps stop at the ends of the log; a jump may lead to a missing event. */
  function moveTo(at, how = "step") {
    setPosition(how === "jump" ? at : nearest(at));
    if (how !== "play") pause();
    shown = Promise.resolve(onMove(how));
    return shown;
  }

  /** Set the slider to an event without showing it. */
  function setPosition(at) {
    missing = at === nearest(at) ? null : at;
    slider.value = missing === null ? at : nearest(Number(at) || 0);
    describe();
  }

  function start() {
    if (seq() >= Number(slider.max)) moveTo(Number(slider.min));
    playback = {};
    play.textContent = "Pause";
    play.setAttribute("aria-pressed", "true");
    playNext(playback);
  }

  async function playNext(own) {
    await shown; // do not run ahead of a slow server
    await new Promise((done) => setTimeout(done, Number(speed.value)));
    if (playback !== own) return;
    if (seq() >= Number(slider.max)) pause();
    else {
      moveTo(seq() + 1, "play");
      playNext(own);
    }
  }

  function pause() {
    playback = null;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
  }

  /** Update the texts around the slider, and return the position as text. */
  function describe() {
    const event = missing === null && shownEvent?.seq === seq() ? shownEvent : null;
    const position = missing === null
      ? `event ${count(seq())} of ${count(Number(slider.max))}`
      : `event ${missing} is not in the log`;
    const text = position + (event ? `, ${event.type}, ${clock(event.at)}` : "");
    slider.setAttribute("aria-valuetext", text);
    if (document.activeElement !== number) number.value = wanted();
    total.textContent = `of ${count(Number(slider.max))}`;
    fill(eventInfo, missing !== null && "not in the log", event
      && [el("code", {}, event.type), " ", el("time", { datetime: event.at }, dayAndClock(event.at))]);
    const isFirst = missing === null && seq() <= Number(slider.min);
    for (const each of [first, back]) each.setAttribute("aria-disabled", String(isFirst));
    for (const each of [next, last]) each.setAttribute("aria-disabled", String(isAtHead()));
    const share = (seq() - slider.min) / Math.max(1, slider.max - slider.min);
    slider.style.setProperty("--share", share);
    return text;
  }

  const isAtHead = () => missing === null && seq() >= Number(slider.max);

  slider.addEventListener("input", () => moveTo(seq(), "drag"));
  slider.addEventListener("keydown", (event) => {
    // The browser's own page step is a tenth of the range.
    const by = { PageUp: PAGE_STEP, PageDown: -PAGE_STEP }[event.key];
    if (!by) return;
    event.preventDefault();
    moveTo(wanted() + by);
  });
  number.addEventListener("change", () => {
    moveTo(number.value === "" ? seq() : Math.trunc(Number(number.value)), "jump");
  });

  fill(root, el("h2", { class: "visually-hidden" }, "Timeline"),
    el("div", { class: "slider-box" }, marks.node, label, slider),
    el("div", { class: "controls" },
      el("div", { class: "row steps", role: "group", "aria-label": "Steps" }, first, back, play, next, last, speed),
      el("p", { class: "position" }, number, total, eventInfo), newEvents));

  return {
    moveTo,
    setPosition,
    isAtHead,
    /** The event of the slider. */
    seq,
    /** The event that was requested, even if it is not in the log. */
    wanted,
    /** What was requested, if it is not in the log, else null. */
    missing: () => missing,
    setSnapshots: marks.show,
    /** Show the type and time of the event at the slider, and return the position as text. */
    showEvent(event) {
      shownEvent = event;
      return describe();
    },
    /** Set the events of the log. The current one may have been pruned, or a missing one recorded. */
    setRange({ first_event, last_event: to }) {
      const at = missing ?? seq();
      const from = Math.min(first_event, to); // all events may have been pruned
      for (const input of [slider, number]) [input.min, input.max] = [from, to];
      marks.setRange(from, to);
      setPosition(at);
    },
    /** Show the number of events after those that were seen. */
    setNewEvents(events) {
      newEvents.hidden = !events;
      newEvents.textContent = plural(events, "new event");
    },
    reset() {
      shownEvent = null;
      pause();
    },
  };
}
