// Marks for snapshots above the slider, each a button at its event with its tags. Too many marks become bars, as high
// as the number of snapshots in their part of the log.

import { button, el, fill } from "../components/dom.js";
import { count, dayAndClock, plural, tagLine } from "../components/format.js";

const MAX_MARKS = 40;
const BARS = 60;
const MIN_ROOM = 0.06;

/** Near the end of the line, the tags are to the left of their mark. */
const facesLeft = (share) => share > 0.8;

export function createSnapshotMarks({ onPick }) {
  const node = el("div", { class: "snapshot-marks", role: "group", "aria-label": "Snapshots" });
  let from = 1;
  let to = 1;
  let snapshots = [];

  const shareOf = (seq) => (seq - from) / Math.max(1, to - from);

  function draw() {
    const bySeq = Map.groupBy(snapshots, ({ seq }) => seq);
    fill(node, bySeq.size > MAX_MARKS ? bars() : marks([...bySeq.values()]));
  }

  function marks(groups) {
    groups.sort((a, b) => a[0].seq - b[0].seq);
    const shares = groups.map(([{ seq }]) => shareOf(seq));
    return groups.map((group, i) => mark(group, roomFor(shares, i)));
  }

  /** Return the share of the line that a mark has for its tags: up to its neighbour, or half of that. */
  function roomFor(shares, i) {
    const by = facesLeft(shares[i]) ? -1 : 1;
    const neighbour = shares[i + by] ?? (by < 0 ? 0 : 1);
    const isShared = shares[i + by] !== undefined && facesLeft(neighbour) !== facesLeft(shares[i]);
    return Math.abs(neighbour - shares[i]) / (isShared ? 2 : 1);
  }

  function mark(group, room) {
    const { seq, created_at: at } = group[0];
    const tags = group.map((info) => tagLine(info.tags)).filter(Boolean).join(" · ");
    const title = `snapshot at event ${count(seq)}${tags ? `, ${tags}` : ""}, ${dayAndClock(at)}`;
    const markNode = button("", () => onPick(seq), { class: "snapshot-mark", "aria-label": title, title });
    markNode.append(el("span", { class: "flag" }));
    if (tags && room > MIN_ROOM) markNode.append(el("span", { class: "flag-text" }, tags));
    markNode.style.setProperty("--at", shareOf(seq));
    markNode.style.setProperty("--room", room);
    markNode.classList.toggle("to-left", facesLeft(shareOf(seq)));
    return markNode;
  }

  function bars() {
    const groups = Map.groupBy(snapshots, ({ seq }) => Math.min(BARS - 1, Math.floor(shareOf(seq) * BARS)));
    const most = Math.max(...[...groups.values()].map((group) => group.length));
    return [...groups].sort((a, b) => a[0] - b[0]).map(([index, group]) => {
      const events = `events ${count(group[0].seq)} to ${count(group.at(-1).seq)}`;
      const title = `${plural(group.length, "snapshot")}, ${events}`;
      const bar = button("", () => onPick(group[0].seq), { class: "snapshot-bar", "aria-label": title, title });
      bar.style.setProperty("--at", index / BARS);
      bar.style.setProperty("--height", group.length / most);
      return bar;
    });
  }

  return {
    node,
    setRange(first, last) {
      const isSame = first === from && last === to;
      [from, to] = [first, last];
      if (!isSame) draw();
    },
    show(all) {
      snapshots = all.filter(({ seq }) => seq >= from && seq <= to);
      draw();
    },
  };
}
