// The keyboard inside a tree: arrows, Home, End, Enter, Space, the asterisk, and typing the start of a name.

const TYPING_PAUSE = 600;

/** Make a tree usable by keys alone. `collapse` and `expand` act on one item. */
export function addTreeKeys(tree, { collapse, expand }) {
  const items = () => [...tree.querySelectorAll("[role=treeitem]")];
  const typed = { text: "", at: 0 };

  function focus(item) {
    if (!item) return;
    for (const other of tree.querySelectorAll("[tabindex='0']")) other.setAttribute("tabindex", "-1");
    item.setAttribute("tabindex", "0");
    item.focus();
  }

  function move(item, by) {
    const all = items();
    focus(all[all.indexOf(item) + by]);
  }

  const isExpanded = (item) => item.getAttribute("aria-expanded") === "true";
  const isCollapsed = (item) => item.getAttribute("aria-expanded") === "false";

  function expandOrEnter(item) {
    if (isCollapsed(item)) expand(item);
    else if (isExpanded(item)) focus(item.querySelector("[role=treeitem]"));
  }

  function collapseOrLeave(item) {
    if (isExpanded(item)) collapse(item);
    else focus(item.parentElement.closest("[role=treeitem]"));
  }

  function toggle(item) {
    if (isExpanded(item)) collapse(item);
    else if (isCollapsed(item)) expand(item);
    else item.dispatchEvent(new Event("activate"));
  }

  function find(item, letter) {
    const now = performance.now();
    typed.text = now - typed.at < TYPING_PAUSE ? typed.text + letter : letter;
    typed.at = now;
    const all = items();
    const start = all.indexOf(item) + (typed.text.length === 1 ? 1 : 0);
    const fromItem = [...all.slice(start), ...all.slice(0, start)];
    focus(fromItem.find((each) => each.textContent.toLowerCase().startsWith(typed.text.toLowerCase())));
  }

  const actions = {
    ArrowDown: (item) => move(item, 1),
    ArrowUp: (item) => move(item, -1),
    ArrowRight: expandOrEnter,
    ArrowLeft: collapseOrLeave,
    Home: () => focus(items()[0]),
    End: () => focus(items().at(-1)),
    Enter: toggle,
    " ": toggle,
    "*": (item) => [...item.parentElement.children].forEach(expand),
  };

  tree.addEventListener("keydown", (event) => {
    const item = event.target.closest("[role=treeitem]");
    if (event.target.closest("a, button, pre")) return;
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    if (Object.hasOwn(actions, event.key)) actions[event.key](item);
    else if (event.key.length === 1) find(item, event.key);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  tree.addEventListener("click", (event) => {
    const item = event.target.closest("[role=treeitem]");
    if (item && tree.contains(item) && !event.target.closest("a, button, pre")) focus(item);
  });
}
