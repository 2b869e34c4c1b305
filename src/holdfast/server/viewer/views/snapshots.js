// The table of a session's snapshots.

import { button, el, fill } from "../components/dom.js";
import { count, dayAndClock, plural, size } from "../components/format.js";

const PAGE = 100;

/** Create the table. The callbacks get the snapshot whose button was pressed, `onPick` the number of its event. */
export function createSnapshotTable(root, { access, onPick, onCompare, onExport, onDelete }) {
  function row(info) {
    const name = `snapshot at event ${info.seq}`;
    const action = (text, label, onClick, style = "quiet small") =>
      button(text, onClick, { class: style, "aria-label": label });
    return el("tr", {},
      el("td", {}, action(count(info.seq), `go to the ${name}`, () => onPick(info.seq))),
      el("td", {}, dayAndClock(info.created_at)),
      el("td", {}, Object.entries(info.tags).map(([key, value]) => el("span", { class: "tag" }, `${key}=${value}`)),
        info.unfinished && el("span", { class: "tag warn" }, "unfinished tool call")),
      el("td", {}, info.status),
      el("td", { class: "number" }, count(info.message_count)),
      el("td", { class: "number" }, size(info.size_bytes)),
      el("td", { class: "row-actions" },
        action("Compare", `compare the ${name} with the current position`, () => onCompare(info)),
        action("Export", `export the ${name}`, () => onExport(info)),
        access.canWrite() && action("Delete", `delete the ${name}`, () => onDelete(info), "quiet small danger")));
  }

  return {
    show(snapshots) {
      const newestFirst = [...snapshots].reverse();
      const body = el("tbody");
      const more = button("", showPage, { class: "quiet" });
      let next = 0;
      function showPage() {
        body.append(...newestFirst.slice(next, next + PAGE).map(row));
        next += PAGE;
        more.hidden = next >= newestFirst.length;
        more.textContent = `show more (${count(newestFirst.length - next)} left)`;
      }
      showPage();
      const names = ["Event", "Saved", "Tags", "Status", "Messages", "Size"];
      const head = [...names.map((name) => el("th", { scope: "col" }, name)),
        el("th", { scope: "col" }, el("span", { class: "visually-hidden" }, "Actions"))];
      fill(root, el("section", { class: "card", "aria-labelledby": "snapshots-title" },
        el("header", { class: "card-head" }, el("h2", { id: "snapshots-title" }, "Snapshots"),
          el("p", { class: "muted" }, plural(snapshots.length, "snapshot"))),
        snapshots.length
          ? el("div", { class: "table-box" }, el("table", {}, el("thead", {}, el("tr", {}, head)), body), more)
          : el("p", { class: "muted" }, "No snapshots yet.")));
    },
  };
}
