// The keyboard inside a tree: arrows, Home, End, Enter, Space, the asterisk, and typing a name.

/** Let a tree be used by keys alone. `fold` and `unfold` act on one item. */
export function treeKeys(top, { fold, unfold }) {
  const items = () => [...top.querySelectorAll("[role=treeitem]")];
  const typed = { text: "", at: 0 };

  function focus(li) {
    if (!li) return;
    for (const other of top.querySelectorAll("[tabindex='0']")) other.setAttribute("tabindex", "-1");
    li.setAttribute("tabindex", "0");
    li.focus();
  }

  function move(li, by) {
    const all = items();
    focus(all[all.indexOf(li) + by]);
  }

  const isOpen = (li) => li.getAttribute("aria-expanded") === "true";
  const canOpen = (li) => li.getAttribute("aria-expanded") === "false";

  function right(li) {
    if (canOpen(li)) unfold(li);
    else if (isOpen(li)) focus(li.querySelector("[role=treeitem]"));
  }

  function left(li) {
    if (isOpen(li)) fold(li);
    else focus(li.parentElement.closest("[role=treeitem]"));
  }

  function toggle(li) {
    if (isOpen(li)) fold(li);
    else if (canOpen(li)) unfold(li);
    else li.dispatchEvent(new Event("activate"));
  }

  function find(li, letter) {
    const now = performance.now();
    typed.text = now - typed.at < 600 ? typed.text + letter : letter;
    typed.at = now;
    const all = items();
    const start = all.indexOf(li) + (typed.text.length === 1 ? 1 : 0);
    const turned = [...all.slice(start), ...all.slice(0, start)];
    focus(turned.find((each) => each.textContent.toLowerCase().startsWith(typed.text.toLowerCase())));
  }

  const acts = {
    ArrowDown: (li) => move(li, 1),
    ArrowUp: (li) => move(li, -1),
    ArrowRight: right,
    ArrowLeft: left,
    Home: () => focus(items()[0]),
    End: () => focus(items().at(-1)),
    Enter: toggle,
    " ": toggle,
    "*": (li) => [...li.parentElement.children].forEach((each) => unfold(each)),
  };

  top.addEventListener("keydown", (event) => {
    const li = event.target.closest("[role=treeitem]");
    if (!li || event.ctrlKey || event.metaKey || event.altKey) return;
    if (Object.hasOwn(acts, event.key)) acts[event.key](li);
    else if (event.key.length === 1) find(li, event.key);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  top.addEventListener("click", (event) => {
    const li = event.target.closest("[role=treeitem]");
    if (li && top.contains(li)) focus(li);
  });
}
