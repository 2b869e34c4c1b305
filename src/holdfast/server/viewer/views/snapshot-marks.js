// Marks for snapshots above the slider, each a button at its event with its tags. Where there are
// too many to tell apart they become bars: as high as a stretch of the log has snapshots.

import { button, el, fill } from "../components/dom.js";
import { count, dayAndClock, plural, tagLine } from "../components/format.js";

const FEW = 40;
const BARS = 60;

/** Near the end tags are written to the left of their mark. */
const facesLeft = (share) => share > 0.8;

export function snapshotTrack({ onPick }) {
  const node = el("div", { class: "track", role: "group", "aria-label": "Snapshots" });
  let from = 1;
  let to = 1;
  let infos = [];

  const share = (seq) => (seq - from) / Math.max(1, to - from);

  function draw() {
    const bySeq = Map.groupBy(infos, ({ seq }) => seq);
    fill(node, bySeq.size > FEW ? bars() : marks([...bySeq.values()]));
  }

  function marks(groups) {
    groups.sort((a, b) => a[0].seq - b[0].seq);
    const places = groups.map(([{ seq }]) => share(seq));
    return groups.map((group, i) => mark(group, roomOf(places, i)));
  }

  /** How much of the line a mark has for its tags: as far as its neighbour, or half of that. */
  function roomOf(places, i) {
    const by = facesLeft(places[i]) ? -1 : 1;
    const neighbour = places[i + by] ?? (by < 0 ? 0 : 1);
    const isShared = places[i + by] !== undefined && facesLeft(neighbour) !== facesLeft(places[i]);
    return Math.abs(neighbour - places[i]) / (isShared ? 2 : 1);
  }

  function mark(group, room) {
    const { seq, created_at: at } = group[0];
    const tags = group.map((info) => tagLine(info.tags)).filter(Boolean).join(" · ");
    const title = `snapshot at event ${count(seq)}${tags ? `, ${tags}` : ""}, ${dayAndClock(at)}`;
    const made = button("", () => onPick(seq), { class: "snapshot-mark", "aria-label": title, title });
    made.append(el("span", { class: "flag" }));
    if (tags && room > 0.06) made.append(el("span", { class: "flag-text" }, tags));
    made.style.setProperty("--at", share(seq));
    made.style.setProperty("--room", room);
    made.classList.toggle("to-left", facesLeft(share(seq)));
    return made;
  }

  function bars() {
    const buckets = Map.groupBy(infos, ({ seq }) => Math.min(BARS - 1, Math.floor(share(seq) * BARS)));
    const most = Math.max(...[...buckets.values()].map((group) => group.length));
    return [...buckets].sort((a, b) => a[0] - b[0]).map(([bucket, group]) => {
      const title = `${plural(group.length, "snapshot")}, events ${count(group[0].seq)} to ${count(group.at(-1).seq)}`;
      const made = button("", () => onPick(group[0].seq), { class: "snapshot-bar", "aria-label": title, title });
      made.style.setProperty("--at", bucket / BARS);
      made.style.setProperty("--high", group.length / most);
      return made;
    });
  }

  return {
    node,
    range(first, last) {
      const isSame = first === from && last === to;
      [from, to] = [first, last];
      if (!isSame) draw();
    },
    show(found) {
      infos = found.filter(({ seq }) => seq >= from && seq <= to);
      draw();
    },
  };
}
