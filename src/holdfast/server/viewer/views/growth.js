// The growth of a session: messages, size and events, each a small chart over time or over events. The shown position
// is marked, and a click goes to another. A table has the same numbers.

import { button, el, fill, svg } from "../components/dom.js";
import { clock, count, day, dayAndClock, size } from "../components/format.js";

const HEIGHT = 84;
const GAP = 36;
const LEFT = 64;
const RIGHT = 16;
const TOP = 24;
const TABLE_ROWS = 40;

/** Round up to the end of an axis. */
function roundUp(number) {
  if (number <= 1) return 1;
  const unit = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 4, 6, 8, 10].map((times) => times * unit).find((end) => end >= number);
}

export function createGrowthView(root, { onPick }) {
  const chart = el("div", { class: "chart" });
  const axis = el("select", { id: "axis" },
    el("option", { value: "at" }, "time"), el("option", { value: "seq" }, "events"));
  const table = el("div", { class: "table-box" });
  let points = [];
  let current = 0;
  let exact = null; // the numbers of the shown position

  const timeOf = (point) => Date.parse(point.at);
  const isByTime = () => axis.value === "at" && points.length > 1 && timeOf(points.at(-1)) > timeOf(points[0]);
  const valueX = (point) => (isByTime() ? timeOf(point) : point.seq);

  const CHARTS = [
    { name: "Messages", of: (point) => point.messages, text: count },
    { name: "Size", of: (point) => point.size_bytes, text: size },
    { name: "Events", of: (point) => point.seq, text: count },
  ];

  function draw() {
    const width = Math.max(280, chart.clientWidth);
    const charts = isByTime() ? CHARTS : CHARTS.slice(0, 2);
    const newest = points.at(-1);
    const [low, high] = [valueX(points[0]), valueX(newest)];
    const x = (value) => LEFT + ((value - low) / Math.max(1, high - low)) * (width - LEFT - RIGHT);
    const total = charts.length * (HEIGHT + GAP) + 34;
    const label = `Growth of the session to ${count(newest.messages)} messages, ${size(newest.size_bytes)} and `
      + `${count(newest.seq)} events. The table below has the same numbers.`;
    const plot = svg("svg", { width, height: total, role: "img", "aria-label": label, class: "plot" },
      charts.map((each, i) => drawChart(each, TOP + i * (HEIGHT + GAP), x, width)),
      ticks(x, low, high, width, total), marker(x, total));
    plot.addEventListener("click", (event) => {
      const left = plot.getBoundingClientRect().left;
      const value = low + ((event.clientX - left - LEFT) / (width - LEFT - RIGHT)) * (high - low);
      onPick(seqAt(value));
    });
    fill(chart, plot);
  }

  function drawChart({ name, of, text }, top, x, width) {
    const end = roundUp(Math.max(...points.map(of)));
    const y = (value) => top + HEIGHT - (value / end) * HEIGHT;
    const line = points.map((point) => `${x(valueX(point)).toFixed(1)},${y(of(point)).toFixed(1)}`);
    const [from, to] = [x(valueX(points[0])), x(valueX(points.at(-1)))];
    const grid = [0, 0.5, 1].map((share) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(end * share), y2: y(end * share) }),
      svg("text", { class: "tick", x: LEFT - 8, y: y(end * share) + 4, "text-anchor": "end" }, text(end * share)),
    ]);
    const point = currentPoint();
    return svg("g", { class: `series series-${name.toLowerCase()}` },
      svg("text", { class: "chart-name", x: LEFT, y: top - 9 }, `${name}: ${text(of(point))}`), grid,
      svg("polygon", { class: "area", points: `${from},${y(0)} ${line.join(" ")} ${to},${y(0)}` }),
      svg("polyline", { class: "line", points: line.join(" ") }),
      svg("circle", { class: "dot", cx: x(valueX(point)), cy: y(of(point)), r: 4 }));
  }

  function ticks(x, low, high, width, total) {
    const tickCount = Math.max(2, Math.min(6, Math.floor(width / 140)));
    const sameDay = day(points[0].at) === day(points.at(-1).at);
    const tickText = (value) => {
      if (!isByTime()) return count(Math.round(value));
      return sameDay ? clock(value) : day(value);
    };
    const positions = Array.from({ length: tickCount }, (_, i) => low + ((high - low) * i) / (tickCount - 1));
    const title = isByTime() ? (sameDay ? `time, ${day(points[0].at)}` : "day") : "event";
    return [
      positions.map((value, i) => svg("text", {
        class: "tick", x: x(value), y: total - 24,
        "text-anchor": i === 0 ? "start" : i === tickCount - 1 ? "end" : "middle",
      }, tickText(value))),
      svg("text", { class: "axis-name", x: (LEFT + width - RIGHT) / 2, y: total - 6, "text-anchor": "middle" }, title),
    ];
  }

  function marker(x, total) {
    const at = x(valueX(currentPoint()));
    return svg("line", { class: "current", x1: at, x2: at, y1: 8, y2: total - 46 });
  }

  /** Return the shown position; until its numbers are loaded, interpolated from the points around it. */
  function currentPoint() {
    if (exact?.seq === current) return exact;
    const after = points.findIndex(({ seq }) => seq >= current);
    if (after <= 0) return points[Math.max(after, 0)];
    const [left, right] = [points[after - 1], points[after]];
    const share = (current - left.seq) / (right.seq - left.seq);
    const mix = (a, b) => a + (b - a) * share;
    return {
      seq: current,
      at: new Date(mix(timeOf(left), timeOf(right))).toISOString(),
      messages: Math.round(mix(left.messages, right.messages)),
      size_bytes: Math.round(mix(left.size_bytes, right.size_bytes)),
    };
  }

  function seqAt(value) {
    const after = points.findIndex((point) => valueX(point) >= value);
    if (after === 0) return points[0].seq;
    if (after < 0) return points.at(-1).seq;
    const [left, right] = [points[after - 1], points[after]];
    const share = (value - valueX(left)) / Math.max(1, valueX(right) - valueX(left));
    return Math.round(left.seq + (right.seq - left.seq) * share);
  }

  function drawTable() {
    const every = Math.max(1, Math.ceil(points.length / TABLE_ROWS));
    const rows = points.filter((_, i) => i % every === 0 || i === points.length - 1);
    const head = ["Event", "Time", "Messages", "Size"].map((name) => el("th", { scope: "col" }, name));
    fill(table, el("table", {}, el("caption", {}, "Growth of the session"),
      el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows.map(tableRow))));
  }

  function tableRow({ seq, at, messages, size_bytes: bytes }) {
    const attributes = { class: "quiet small", "aria-label": `go to event ${seq}` };
    const cells = [button(count(seq), () => onPick(seq), attributes), dayAndClock(at), count(messages), size(bytes)];
    return el("tr", {}, cells.map((cell) => el("td", {}, cell)));
  }

  axis.addEventListener("change", () => points.length && draw());
  new ResizeObserver(() => points.length && chart.clientWidth && draw()).observe(chart);
  fill(root, el("section", { class: "card", "aria-labelledby": "growth-title" },
    el("header", { class: "card-head" }, el("h2", { id: "growth-title" }, "Growth"),
      el("p", {}, el("label", { for: "axis" }, "over "), axis)),
    chart, el("details", {}, el("summary", {}, "Show as table"), table)));

  return {
    show(newPoints, seq) {
      [points, current] = [newPoints, seq];
      if (!points.length) {
        fill(chart, el("p", { class: "muted" }, "All events were pruned."));
        fill(table);
        return;
      }
      draw();
      drawTable();
    },
    reset() { [points, exact] = [[], null]; },
    /** Mark another position, given with its numbers. */
    setCurrent(point) {
      [exact, current] = [point, point.seq];
      if (points.length && chart.clientWidth) draw();
    },
  };
}
