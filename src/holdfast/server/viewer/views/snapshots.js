// The snapshots of a session: all of them for the marks on the timeline, and a table with what one
// can do with each.

import { button, el, fill } from "../components/dom.js";
import { get, sessionPath } from "../api/client.js";
import { count, dayAndClock, plural, size } from "../components/format.js";

const PAGE = 500;
const MOST = 10_000;
const ROWS = 100;

/** Every snapshot of a session, oldest first; `onPage` is called as they come in. */
export async function allSnapshots(place, signal, onPage) {
  const found = [];
  let cursor = null;
  do {
    const query = { limit: PAGE, cursor, scope: place.scope };
    const page = await get(sessionPath(place, "snapshots"), query, signal);
    found.push(...page.snapshots);
    cursor = page.next_cursor;
    onPage(found);
  } while (cursor && found.length < MOST);
  return found;
}

/** The table. `acts` are what its buttons do; `canWrite()` says which of them there are. */
export function snapshotTable(root, { acts, canWrite }) {
  const act = (text, does, name, look = "quiet small") =>
    button(text, does, { class: look, "aria-label": name });

  function row(info) {
    const name = `snapshot at event ${info.seq}`;
    return el("tr", {},
      el("td", {}, button(count(info.seq), () => acts.go(info.seq), { class: "quiet small", "aria-label": `go to the ${name}` })),
      el("td", {}, dayAndClock(info.created_at)),
      el("td", {}, Object.entries(info.tags).map(([key, value]) => el("span", { class: "tag" }, `${key}=${value}`)),
        info.unfinished && el("span", { class: "tag warn" }, "unfinished tool call")),
      el("td", {}, info.status),
      el("td", { class: "number" }, count(info.message_count)),
      el("td", { class: "number" }, size(info.size_bytes)),
      el("td", { class: "row-acts" },
        act("Compare", () => acts.compare(info), `compare the ${name} with this moment`),
        act("Export", () => acts.export(info), `export the ${name}`),
        canWrite() && act("Delete", () => acts.delete(info), `delete the ${name}`, "quiet small danger")));
  }

  return {
    show(infos) {
      const newest = [...infos].reverse();
      const body = el("tbody");
      const more = button("", () => page(), { class: "quiet" });
      let next = 0;
      function page() {
        body.append(...newest.slice(next, next + ROWS).map(row));
        next += ROWS;
        more.hidden = next >= newest.length;
        more.textContent = `show more of ${count(newest.length - next)}`;
      }
      page();
      const names = ["Event", "Saved", "Tags", "Status", "Messages", "Size"];
      const head = [...names.map((name) => el("th", { scope: "col" }, name)),
        el("th", { scope: "col" }, el("span", { class: "visually-hidden" }, "What to do"))];
      fill(root, el("section", { class: "card", "aria-labelledby": "snapshots-title" },
        el("header", { class: "card-head" }, el("h2", { id: "snapshots-title" }, "Snapshots"),
          el("p", { class: "muted" }, plural(infos.length, "snapshot"))),
        infos.length
          ? el("div", { class: "table-box" }, el("table", {}, el("thead", {}, el("tr", {}, head)), body), more)
          : el("p", { class: "muted" }, "None is saved yet.")));
    },
  };
}
