// The conversation at one step. It is cut into stretches of fifty messages; only those near what is
// looked at are fetched and in the page, so that ten thousand messages scroll like fifty.

import { byId, button, el, fill } from "../components/dom.js";
import { plural } from "../components/format.js";
import { messageView } from "./message.js";
import { alertOf } from "../components/notices.js";
import { CallBook } from "./tool-calls.js";

export const STRETCH = 50;
const GUESSED_HEIGHT = 84;
const KEPT = 8;

export function conversation({ fetchMessages }) {
  const pane = byId("conversation");
  let stretches = [];
  let shown = null;
  let book = new CallBook(pane, goToMessage);
  let stop = new AbortController();
  let isUnseen = false; // drawn while the pane was not displayed, where nothing can be scrolled
  const seen = new IntersectionObserver(onSight, { root: pane, rootMargin: "600px 0px" });

  /** Show a moment: `{seq, count, offset, messages, keys, kinds, removed}`. */
  function show(moment) {
    const stays = shown && moment.untouched && shown.id === moment.id && shown.count === moment.count;
    byId("conversation-count").textContent = told(moment);
    ends.hidden = moment.count < 5;
    if (stays) {
      shown = { ...moment, offset: shown.offset, messages: shown.messages };
      remark();
      return;
    }
    stop.abort();
    stop = new AbortController();
    shown = moment;
    book = new CallBook(pane, goToMessage);
    build();
    goToStep();
  }

  function build() {
    seen.disconnect();
    const { count, offset, messages } = shown;
    const end = offset + messages.length;
    const own = stretch(offset, end);
    own.messages = messages;
    stretches = [own];
    for (let to = offset; to > 0; to -= STRETCH) stretches.unshift(stretch(Math.max(0, to - STRETCH), to));
    for (let from = end; from < count; from += STRETCH) {
      stretches.push(stretch(from, Math.min(count, from + STRETCH)));
    }
    draw(own);
    const nothing = !count && el("p", { class: "muted empty" }, "No messages at this step.");
    fill(pane, nothing, stretches.map((each) => each.node));
    stretches.forEach((each) => seen.observe(each.node));
    book.link(stretches);
  }

  function stretch(from, to) {
    const made = { from, to, node: el("div", { class: "stretch" }), messages: null, drawn: false, near: false };
    made.node.style.setProperty("height", `${(to - from) * GUESSED_HEIGHT}px`);
    made.node.stretch = made;
    return made;
  }

  function draw(each) {
    const { count, kinds } = shown;
    fill(each.node, each.messages.map((message, i) => {
      const index = each.from + i;
      book.note(message, index);
      return messageView(message, index, count, kinds.get(index));
    }));
    each.node.style.removeProperty("height");
    each.drawn = true;
  }

  /** Take the messages of a stretch out of the page, and keep its place. */
  function empty(each) {
    each.node.style.setProperty("height", `${each.node.offsetHeight}px`);
    fill(each.node);
    each.drawn = false;
  }

  async function load(each) {
    if (each.drawn || each.loading) return;
    const { signal } = stop;
    each.loading = true;
    try {
      each.messages ??= await fetchMessages(shown.seq, each.from, each.to - each.from, signal);
      if (signal.aborted) return;
      draw(each);
      book.link(stretches);
      tidy();
    } catch (error) {
      alertOf(error);
    } finally {
      each.loading = false;
    }
  }

  function onSight(sights) {
    for (const sight of sights) sight.target.stretch.near = sight.isIntersecting;
    // Who drags the scrollbar passes by many stretches: only where it rests is fetched.
    clearTimeout(onSight.waiting);
    onSight.waiting = setTimeout(() => {
      stretches.filter((each) => each.near).forEach(load);
      tidy();
    }, 60);
  }

  function tidy() {
    const idle = stretches.filter((each) => each.drawn && !each.near);
    idle.slice(0, Math.max(0, idle.length - KEPT)).forEach(empty);
  }

  /** Show what the step touched, else the end. */
  function goToStep() {
    isUnseen = pane.clientHeight === 0;
    const touched = [...shown.kinds.keys()];
    const target = touched.length ? Math.max(...touched) : shown.count - 1;
    if (target >= shown.count - 1) pane.scrollTop = pane.scrollHeight;
    else goToMessage(target);
  }

  async function goToMessage(index, { focus = false } = {}) {
    const each = stretches.find(({ from, to }) => from <= index && index < to);
    if (!each) return;
    await load(each);
    const article = each.node.querySelector(`[data-index="${index}"]`);
    article?.scrollIntoView({ block: "nearest" });
    if (focus) article?.focus();
  }

  /** The messages are the same; only what this step did to them is another matter. */
  function remark() {
    for (const each of stretches.filter(({ drawn }) => drawn)) {
      if (each.node.querySelector(".is-added, .is-changed")) draw(each);
    }
    book.link(stretches);
  }

  const jump = (text, index) => button(text, () => goToMessage(index(), { focus: true }), { class: "quiet small" });
  const ends = el("div", { class: "row" }, jump("to the first", () => 0), jump("to the last", () => (shown?.count ?? 0) - 1));
  byId("conversation-count").after(ends);

  return {
    show,
    /** The pane is displayed again. */
    display() {
      if (isUnseen && shown) goToStep();
    },
    /** Another session follows: fetch nothing more of this one. */
    forget() {
      stop.abort();
      clearTimeout(onSight.waiting);
      seen.disconnect();
      stretches = [];
      shown = null;
    },
  };
}

function told({ count, removed }) {
  const gone = removed ? `, − ${removed} removed at this step` : "";
  return plural(count, "message") + gone;
}
