// The lines that differ between two texts, by the algorithm of Myers: the shortest list of removed and added lines.

const MAX_CHANGES = 1000;

/**
 * Return rows `{sign, text}` with the sign "+", "-" or " ", and `{sign: "…"}` where lines are left out, so that
 * `context` unchanged lines are around each change. Return null if the texts differ too much.
 */
export function diffLines(before, after, context = 3) {
  const [old, now] = [splitLines(before), splitLines(after)];
  let start = 0;
  while (start < Math.min(old.length, now.length) && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < Math.min(old.length, now.length) - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  const rows = compareMiddle(old.slice(start, old.length - end), now.slice(start, now.length - end));
  if (rows === null) return null;
  const same = (lines) => lines.map((text) => ({ sign: " ", text }));
  return foldRows([...same(old.slice(0, start)), ...rows, ...same(old.slice(old.length - end))], context);
}

const splitLines = (text) => {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
};

/** Find the shortest path through the grid of both texts; `trace` has the furthest points for each number of changes. */
function compareMiddle(old, now) {
  const limit = Math.min(old.length + now.length, MAX_CHANGES);
  const offset = limit + 1;
  const furthest = new Int32Array(2 * limit + 3);
  const trace = [];
  for (let changes = 0; changes <= limit; changes += 1) {
    trace.push(furthest.slice(offset - changes - 1, offset + changes + 2));
    for (let k = -changes; k <= changes; k += 2) {
      const isDown = k === -changes || (k !== changes && furthest[offset + k - 1] < furthest[offset + k + 1]);
      let x = isDown ? furthest[offset + k + 1] : furthest[offset + k - 1] + 1;
      while (x < old.length && x - k < now.length && old[x] === now[x - k]) x += 1;
      furthest[offset + k] = x;
      if (x >= old.length && x - k >= now.length) return tracePath(old, now, trace);
    }
  }
  return null;
}

function tracePath(old, now, trace) {
  const rows = [];
  let [x, y] = [old.length, now.length];
  for (let changes = trace.length - 1; changes >= 0; changes -= 1) {
    const furthest = (k) => trace[changes][k + changes + 1];
    const k = x - y;
    const isDown = k === -changes || (k !== changes && furthest(k - 1) < furthest(k + 1));
    const from = changes === 0 ? 0 : isDown ? furthest(k + 1) : furthest(k - 1);
    const fromY = changes === 0 ? 0 : from - (isDown ? k + 1 : k - 1);
    while (x > from && y > fromY && old[x - 1] === now[y - 1]) {
      x -= 1;
      y -= 1;
      rows.push({ sign: " ", text: old[x] });
    }
    if (changes === 0) break;
    if (isDown) rows.push({ sign: "+", text: now[y - 1] });
    else rows.push({ sign: "-", text: old[x - 1] });
    [x, y] = [from, fromY];
  }
  return rows.reverse();
}

/** Leave out unchanged lines that are far from changes. */
function foldRows(rows, context) {
  const isNear = new Uint8Array(rows.length);
  rows.forEach(({ sign }, i) => {
    if (sign !== " ") isNear.fill(1, Math.max(0, i - context), i + context + 1);
  });
  const folded = [];
  rows.forEach((row, i) => {
    if (isNear[i]) folded.push(row);
    else if (folded.at(-1)?.sign !== "…") folded.push({ sign: "…" });
  });
  return folded;
}
