// The line of time: a slider over every event, marks for snapshots above it, steps to either side,
// and play. It shows at once where it is moved to; what is there comes a moment later. A link or a number may
// name an event that is not in the log: then the slider stands at the nearest end and says so.

import { button, el, fill } from "../components/dom.js";
import { clock, count, dayAndClock } from "../components/format.js";
import { icon } from "../components/icons.js";
import { snapshotTrack } from "./snapshot-marks.js";

const SPEEDS = [["1/s", 1000], ["4/s", 250], ["20/s", 50]];

export function timeline(root, { onMove }) {
  const slider = el("input", { type: "range", step: "1", id: "slider", class: "slider" });
  const label = el("label", { for: "slider", class: "visually-hidden" }, "Event");
  const where = el("p", { class: "where" });
  const number = el("input", { type: "number", class: "jump", "aria-label": "Event number" });
  const total = el("span", { class: "muted" });
  const what = el("span", { class: "what" });
  const newer = button("", () => move(Number(slider.max), "jump"), { class: "newer", hidden: true });
  const track = snapshotTrack({ onPick: (seq) => move(seq, "jump") });
  const step = (sign, name, by) =>
    button(icon(sign), () => move(base() + by), { "aria-label": name, title: name });
  const first = step("first", "First event", -Infinity);
  const back = step("back", "Previous event", -1);
  const next = step("next", "Next event", 1);
  const last = step("last", "Last event", Infinity);
  const play = button("Play", () => (playing ? pause() : start()), { "aria-pressed": "false", class: "play" });
  const speed = el("select", { "aria-label": "Speed, events a second", title: "Speed, events a second" },
    SPEEDS.map(([text, wait]) => el("option", { value: wait }, text)));
  let playing = null;
  let known = null;
  let ready = Promise.resolve();
  let outside = null; // what was asked for, where that is not in the log

  const seq = () => Number(slider.value);
  const base = () => (typeof outside === "number" ? outside : seq());
  const nearest = (wanted) => Math.min(Math.max(wanted, Number(slider.min)), Number(slider.max));

  /** Go to an event. Steps end where the log does; a jump out of the log leads nowhere, and is told. */
  function move(wanted, how = "step") {
    place(how === "jump" ? wanted : nearest(wanted));
    if (how !== "play") pause();
    ready = Promise.resolve(onMove(seq(), how));
    return ready;
  }

  /** Stand at an event without going there. */
  function place(wanted) {
    outside = wanted === nearest(wanted) ? null : wanted;
    slider.value = outside === null ? wanted : nearest(Number(wanted) || 0);
    tell(null);
  }

  function start() {
    if (seq() >= Number(slider.max)) move(Number(slider.min));
    playing = {};
    play.textContent = "Pause";
    play.setAttribute("aria-pressed", "true");
    tick(playing);
  }

  async function tick(mine) {
    await ready; // a slow server sets the pace
    await new Promise((done) => setTimeout(done, Number(speed.value)));
    if (playing !== mine) return;
    if (seq() >= Number(slider.max)) pause();
    else {
      move(seq() + 1, "play");
      tick(mine);
    }
  }

  function pause() {
    playing = null;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
  }

  /** Say where it stands, as much as is known of the event. */
  function tell(found) {
    known = found ?? known;
    const event = outside === null && known?.seq === seq() ? known : null;
    const text = outside === null
      ? `event ${count(seq())} of ${count(Number(slider.max))}`
      : `event ${outside} is not in the log`;
    const more = event ? `, ${event.type}, ${clock(event.at)}` : "";
    slider.setAttribute("aria-valuetext", text + more);
    if (document.activeElement !== number) number.value = base();
    total.textContent = `of ${count(Number(slider.max))}`;
    fill(what, outside !== null && "not in the log", event && [el("code", {}, event.type), " ", el("time", { datetime: event.at }, dayAndClock(event.at))]);
    const isFirst = outside === null && seq() <= Number(slider.min);
    const isLast = outside === null && seq() >= Number(slider.max);
    for (const [each, ends] of [[first, isFirst], [back, isFirst], [next, isLast], [last, isLast]]) {
      each.setAttribute("aria-disabled", String(ends));
    }
    const share = (seq() - slider.min) / Math.max(1, slider.max - slider.min);
    slider.style.setProperty("--share", share);
    return text + more;
  }

  slider.addEventListener("input", () => move(seq(), "drag"));
  slider.addEventListener("keydown", (event) => {
    // The browser's own page step is a tenth of the whole; here it is ten events.
    const by = { PageUp: 10, PageDown: -10 }[event.key];
    if (!by) return;
    event.preventDefault();
    move(base() + by);
  });
  number.addEventListener("change", () => {
    move(number.value === "" ? seq() : Math.trunc(Number(number.value)), "jump");
  });

  fill(where, number, total, what);
  fill(root, el("h2", { class: "visually-hidden" }, "Timeline"),
    el("div", { class: "rails" }, track.node, label, slider),
    el("div", { class: "controls" },
      el("div", { class: "row steps", role: "group", "aria-label": "Steps" }, first, back, play, next, last, speed),
      where, newer));

  return {
    move,
    seq,
    tell,
    pause,
    forget() { known = null; pause(); },
    base,
    /** What was asked for, where that is not in the log; null elsewhere. */
    outside: () => outside,
    isAtEnd: () => outside === null && seq() >= Number(slider.max),
    /** The events there are. Where one stands may be pruned, or may have come to be. */
    range({ first_event: first_, last_event: to }) {
      const stood = outside ?? seq();
      const from = Math.min(first_, to); // all events may have been pruned
      slider.min = from;
      slider.max = to;
      number.min = from;
      number.max = to;
      track.range(from, to);
      place(stood);
    },
    place,
    snapshots: track.show,
    /** Say that there is more than where one stands. */
    waiting(events) {
      newer.hidden = !events;
      newer.textContent = events ? `${count(events)} new event${events === 1 ? "" : "s"}` : "";
    },
  };
}
