// The conversation at one position. It is split into pages of fifty messages; only those near the visible part are
// fetched and in the DOM, so ten thousand messages scroll like fifty.

import { MESSAGE_PAGE } from "../api/position.js";
import { byId, button, el, fill } from "../components/dom.js";
import { plural } from "../components/format.js";
import { showError } from "../components/notices.js";
import { messageArticle } from "./message.js";
import { ToolCallLinks } from "./tool-calls.js";

const ESTIMATED_HEIGHT = 84;
const MAX_IDLE_PAGES = 8;
const SCROLL_DELAY = 60;

/**
 * Create the view. `fetch(seq, offset, limit, signal)` returns messages of the conversation at an event, and `blobs()`
 * what downloads their large parts.
 */
export function createConversation(pane, { fetch, blobs }) {
  let pages = [];
  let shown = null;
  let links = new ToolCallLinks(pane, goToMessage);
  let stop = new AbortController();
  let scrollTimer = null;
  let isScrollPending = false; // drawn while the pane was hidden, when it cannot be scrolled
  const observer = new IntersectionObserver(onIntersection, { root: pane, rootMargin: "600px 0px" });

  /** Show `{id, seq, count, offset, messages, kinds, removed, isUnchanged}`; `id` names the session. */
  function show(conversation) {
    const isSame = shown && conversation.isUnchanged && shown.id === conversation.id
      && shown.count === conversation.count;
    byId("conversation-count").textContent = countText(conversation);
    jumps.hidden = conversation.count < 5;
    if (isSame) {
      shown = { ...conversation, offset: shown.offset, messages: shown.messages };
      updateMarks();
      return;
    }
    stop.abort();
    stop = new AbortController();
    shown = conversation;
    links = new ToolCallLinks(pane, goToMessage);
    build();
    scrollToChange();
  }

  function build() {
    observer.disconnect();
    const { count, offset, messages } = shown;
    const end = offset + messages.length;
    const loaded = createPage(offset, end);
    loaded.messages = messages;
    pages = [loaded];
    for (let to = offset; to > 0; to -= MESSAGE_PAGE) pages.unshift(createPage(Math.max(0, to - MESSAGE_PAGE), to));
    for (let from = end; from < count; from += MESSAGE_PAGE) {
      pages.push(createPage(from, Math.min(count, from + MESSAGE_PAGE)));
    }
    draw(loaded);
    const empty = !count && el("p", { class: "muted empty" }, "No messages at this event.");
    fill(pane, empty, pages.map(({ node }) => node));
    pages.forEach(({ node }) => observer.observe(node));
    links.update(pages);
  }

  function createPage(from, to) {
    const page = { from, to, node: el("div"), messages: null, isDrawn: false, isNear: false, isLoading: false };
    page.node.style.setProperty("height", `${(to - from) * ESTIMATED_HEIGHT}px`);
    page.node.page = page;
    return page;
  }

  function draw(page) {
    const { count, kinds } = shown;
    fill(page.node, page.messages.map((message, i) => {
      const index = page.from + i;
      links.add(message, index);
      return messageArticle(message, index, count, kinds.get(index), blobs());
    }));
    page.node.style.removeProperty("height");
    page.isDrawn = true;
  }

  /** Remove the messages of a page from the DOM, but keep its height. */
  function clear(page) {
    page.node.style.setProperty("height", `${page.node.offsetHeight}px`);
    fill(page.node);
    page.isDrawn = false;
  }

  async function load(page) {
    if (page.isDrawn || page.isLoading) return;
    const { signal } = stop;
    page.isLoading = true;
    try {
      page.messages ??= await fetch(shown.seq, page.from, page.to - page.from, signal);
      if (signal.aborted) return;
      draw(page);
      links.update(pages);
      clearIdle();
    } catch (error) {
      showError(error);
    } finally {
      page.isLoading = false;
    }
  }

  function onIntersection(entries) {
    for (const { target, isIntersecting } of entries) target.page.isNear = isIntersecting;
    // Dragging the scrollbar passes over many pages: load only those where it rests.
    clearTimeout(scrollTimer);
    scrollTimer = setTimeout(() => {
      pages.filter(({ isNear }) => isNear).forEach(load);
      clearIdle();
    }, SCROLL_DELAY);
  }

  function clearIdle() {
    const idle = pages.filter(({ isDrawn, isNear }) => isDrawn && !isNear);
    idle.slice(0, Math.max(0, idle.length - MAX_IDLE_PAGES)).forEach(clear);
  }

  /** Scroll to the last message that the event changed, else to the end. */
  function scrollToChange() {
    isScrollPending = pane.clientHeight === 0;
    const changed = [...shown.kinds.keys()];
    const target = changed.length ? Math.max(...changed) : shown.count - 1;
    if (target >= shown.count - 1) pane.scrollTop = pane.scrollHeight;
    else goToMessage(target);
  }

  async function goToMessage(index, { focus = false } = {}) {
    const page = pages.find(({ from, to }) => from <= index && index < to);
    if (!page) return;
    await load(page);
    const article = page.node.querySelector(`[data-index="${index}"]`);
    article?.scrollIntoView({ block: "nearest" });
    if (focus) article?.focus();
  }

  /** Remove the marks of the previous event; the messages are the same. */
  function updateMarks() {
    for (const page of pages.filter(({ isDrawn }) => isDrawn)) {
      if (page.node.querySelector(".is-added, .is-changed")) draw(page);
    }
    links.update(pages);
  }

  const jump = (text, index) =>
    button(text, () => goToMessage(index(), { focus: true }), { class: "quiet small" });
  const jumps = el("div", { class: "row" },
    jump("first message", () => 0), jump("last message", () => (shown?.count ?? 0) - 1));
  byId("conversation-count").after(jumps);

  return {
    show,
    /** Scroll, if the conversation was drawn while its pane was hidden. */
    scrollIfPending() {
      if (isScrollPending && shown) scrollToChange();
    },
    /** Forget the conversation and cancel its requests. */
    reset() {
      stop.abort();
      clearTimeout(scrollTimer);
      observer.disconnect();
      pages = [];
      shown = null;
    },
  };
}

function countText({ count, removed }) {
  return plural(count, "message") + (removed ? `, − ${removed} removed by this event` : "");
}
