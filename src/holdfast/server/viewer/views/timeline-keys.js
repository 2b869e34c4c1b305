// Keys for the timeline from anywhere on the page, except where a key has a meaning of its own: in
// fields, lists, tabs, trees and dialogs. Page Up goes on, as it does on every slider.

const OWN_KEYS = "input, select, textarea, dialog, [role=tree], [role=tablist], summary";
const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };
const SCROLLS = new Set(["PageUp", "PageDown", "Home", "End"]);

export function timelineKeys({ isOn, step }) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (!Object.hasOwn(STEPS, event.key) || !isOn()) return;
    if (event.target.closest(OWN_KEYS)) return;
    if (SCROLLS.has(event.key) && event.target.closest("#conversation, .side, .events")) return;
    event.preventDefault();
    step(STEPS[event.key]);
  });
}
