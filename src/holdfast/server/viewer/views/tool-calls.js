// Links between tool calls and their results. A call without a result is labelled so.

import { parseMessage } from "../api/messages.js";
import { button, fill } from "../components/dom.js";

export class ToolCallLinks {
  #calls = new Map();
  #results = new Map();

  constructor(pane, goToMessage) {
    this.pane = pane;
    this.goToMessage = goToMessage;
  }

  /** Add the calls and results of a message. */
  add(message, index) {
    for (const block of parseMessage(message)?.blocks ?? []) {
      if (!block.id) continue;
      if (block.kind === "call") this.#calls.set(block.id, { index, name: block.name });
      if (block.kind === "result") this.#results.set(block.id, index);
    }
  }

  /** Update the links of all calls and results in the DOM. */
  update(pages) {
    let lastUnknown = -1; // a call before it may have a result that is not fetched
    for (const page of pages) if (!page.messages) lastUnknown = page.to - 1;
    for (const node of this.pane.querySelectorAll("[data-result-of]")) this.#linkCall(node, lastUnknown);
    for (const node of this.pane.querySelectorAll("[data-call-of]")) this.#linkResult(node);
  }

  #linkCall(node, lastUnknown) {
    const id = node.dataset.resultOf;
    const index = this.#results.get(id);
    if (index !== undefined) fill(node, this.#link(`result in #${index}`, index));
    else if (id && Number(node.closest("article").dataset.index) > lastUnknown) fill(node, "no result yet");
  }

  #linkResult(node) {
    const call = this.#calls.get(node.dataset.callOf);
    if (!call) return;
    fill(node, this.#link(`called in #${call.index}`, call.index));
    if (call.name) node.parentElement.querySelector(".tool").textContent = call.name;
  }

  #link(text, index) {
    return button(text, () => this.goToMessage(index, { focus: true }), { class: "quiet small" });
  }
}
