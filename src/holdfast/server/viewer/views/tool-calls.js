// Which result belongs to which call: each names the other, and a click leads there. A call whose
// result is nowhere in what follows is said to have none.

import { button, fill } from "../components/dom.js";
import { read } from "../api/messages.js";

export class CallBook {
  #calls = new Map();
  #results = new Map();

  constructor(pane, goTo) {
    this.pane = pane;
    this.goTo = goTo;
  }

  /** Take a message in. */
  note(message, index) {
    for (const block of read(message)?.blocks ?? []) {
      if (!block.id) continue;
      if (block.kind === "call") this.#calls.set(block.id, { index, name: block.name });
      if (block.kind === "result") this.#results.set(block.id, index);
    }
  }

  /** Join the ends of all calls that are in the page. */
  link(stretches) {
    let lastGap = -1;
    for (const each of stretches) if (!each.messages) lastGap = each.to - 1;
    for (const end of this.pane.querySelectorAll("[data-answer-to]")) this.#linkCall(end, lastGap);
    for (const end of this.pane.querySelectorAll("[data-call-of]")) this.#linkResult(end);
  }

  #linkCall(end, lastGap) {
    const id = end.dataset.answerTo;
    const index = this.#results.get(id);
    if (index !== undefined) fill(end, this.#jump(`result in #${index}`, index));
    else if (id && Number(end.closest("article").dataset.index) > lastGap) fill(end, "no result yet");
  }

  #linkResult(end) {
    const call = this.#calls.get(end.dataset.callOf);
    if (!call) return;
    fill(end, this.#jump(`called in #${call.index}`, call.index));
    const tool = end.parentElement.querySelector("[data-tool-of]");
    if (call.name) tool.textContent = call.name;
  }

  #jump(text, index) {
    return button(text, () => this.goTo(index, { focus: true }), { class: "quiet small" });
  }
}
