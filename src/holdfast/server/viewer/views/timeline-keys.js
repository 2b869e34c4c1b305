// Keys of the timeline, from anywhere on the page except where they have another meaning: in fields, lists, tabs,
// trees and dialogs. Page Up moves forward, as on every slider.

const OTHER_MEANING = "input, select, textarea, dialog, [role=tree], [role=tablist], summary";
const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };
const SCROLL_KEYS = new Set(["PageUp", "PageDown", "Home", "End"]);

export function addTimelineKeys({ isActive, step }) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (!Object.hasOwn(STEPS, event.key) || !isActive()) return;
    if (event.target.closest(OTHER_MEANING)) return;
    if (SCROLL_KEYS.has(event.key) && event.target.closest("#conversation, .side, .events")) return;
    event.preventDefault();
    step(STEPS[event.key]);
  });
}
