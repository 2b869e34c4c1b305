"""Contrast, themes, the keyboard, screen readers and phones."""

from __future__ import annotations

import re

import pytest

from viewer.sample_sessions import AGENT, LONG, LONG_AGENT, SESSION
from viewer.viewer_page import box_of, expect

PHONE = {"width": 390, "height": 844}

# Texts whose contrast with their background is below 4.5, computed as in WCAG.
LOW_CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const drawn = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const rgba = (colour) => {
    if (!known.has(colour)) known.set(colour, drawn(colour));
    return known.get(colour);
  };
  const over = (top, below) => {
    const a = top[3] / 255;
    return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a)).concat(255);
  };
  const ground = (node) => {
    const own = rgba(getComputedStyle(node).backgroundColor);
    if (own[3] === 255) return own;
    const below = node.parentElement ? ground(node.parentElement) : [255, 255, 255, 255];
    return over(own, below);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((each) => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    const isSeen = text.data.trim() && node.checkVisibility({ visibilityProperty: true });
    if (!isSeen || node.closest(".visually-hidden, :disabled, svg, option")) continue;
    const back = ground(node);
    const [a, b] = [over(rgba(getComputedStyle(node).color), back), back].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${node.className} ${text.data.slice(0, 40)}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(viewer, scheme):
    page = viewer.page
    page.emulate_media(color_scheme=scheme)
    for at in (12, 14, 16, 23):
        viewer.open(AGENT, SESSION, at=at)
        assert page.evaluate(LOW_CONTRAST) == []
    viewer.open(AGENT, SESSION, at=16, view="snapshots")
    assert page.evaluate(LOW_CONTRAST) == []
    viewer.open(AGENT, SESSION, at=16, view="compare", **{"from": 11, "to": 16})
    expect(page.locator(".diff-entry").first).to_be_visible()
    assert page.evaluate(LOW_CONTRAST) == []
    page.get_by_role("button", name="Restore…").click()
    expect(page.locator("dialog .main")).to_be_enabled()
    assert page.evaluate(LOW_CONTRAST) == []
    page.keyboard.press("Escape")


def test_api_docs_have_enough_contrast(viewer):
    page = viewer.page
    page.goto(f"{viewer.url}docs")
    page.locator("details.route summary").first.click()
    assert page.evaluate(LOW_CONTRAST) == []


def test_theme_follows_the_system_until_one_is_chosen(viewer):
    page = viewer.open().page
    page.emulate_media(color_scheme="dark")
    background = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_role("button", name="Theme: auto").click()
    light = page.evaluate(background)
    assert light != dark
    page.reload()
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    assert page.evaluate(background) == light
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(background) == dark
    page.get_by_role("button", name="Theme: dark").click()


# ------------------------------------------------------------------------------------------ keys


def test_tab_key_reaches_the_whole_page_with_visible_focus(viewer):
    page = viewer.open(AGENT, SESSION, at=14).page
    page.reload()
    viewer.open(AGENT, SESSION, at=14)
    reached = []
    for _ in range(70):
        page.keyboard.press("Tab")
        name, is_visible = page.evaluate(
            """() => {
              const node = document.activeElement;
              if (node === document.body) return ["body", true];
              const row = node.querySelector(":scope > .tree-row") ?? node;
              const style = getComputedStyle(row);
              return [node.id || node.ariaLabel || node.textContent.slice(0, 40),
                      style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
            }"""
        )
        reached.append(name)
        assert is_visible, f"the focus of {name} is not visible"
        if name == "body":
            break
    for wanted in ("skip", "theme", "slider", "tab-state", "conversation", "Previous event"):
        assert wanted in reached


def test_skip_link_leads_to_the_session(viewer):
    page = viewer.open(AGENT, SESSION, at=3).page
    page.reload()
    viewer.open(AGENT, SESSION, at=3)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the session")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    assert f"{AGENT}/{SESSION}" in page.evaluate("location.hash")


def test_arrow_keys_switch_tabs(viewer):
    page = viewer.open(AGENT, SESSION).page
    page.get_by_role("tab", name="State").focus()
    for name in ("Compare", "Growth", "Snapshots", "State"):
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name=name)).to_be_focused()
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()


def test_dialog_traps_the_focus_and_returns_it(viewer):
    page = viewer.open(AGENT, SESSION).page
    page.get_by_role("button", name="Export…").focus()
    page.keyboard.press("Enter")
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate("!document.activeElement.closest('main, nav, header')")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Export…")).to_be_focused()


# --------------------------------------------------------------------------------- screen readers


def test_landmarks_headings_and_controls_have_names(viewer):
    page = viewer.reset().open(AGENT, SESSION, at=14).page
    for role, name in [
        ("banner", None),
        ("navigation", "Agents and sessions"),
        ("main", None),
        ("region", "Timeline"),
        ("region", "Conversation"),
        ("region", "Values"),
        ("region", "Event 14"),
        ("feed", "Conversation"),
        ("slider", "Event"),
    ]:
        expect(page.get_by_role(role, **({"name": name} if name else {})).first).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, a")]
          .filter((node) => node.checkVisibility())
          .filter((node) => !(node.ariaLabel || node.textContent.trim() || node.labels?.length))
          .map((node) => node.outerHTML)"""
    )
    assert nameless == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))


def test_step_is_announced_to_screen_readers(viewer):
    page = viewer.open(AGENT, SESSION, at=5).page
    page.get_by_role("button", name="Next event").click()
    expect(page.locator("[aria-live=polite]#announcer")).to_have_text(
        re.compile(r"^event 6 of 23, llm\.called, ")
    )


# ----------------------------------------------------------------------------------------- phone


def test_phone_shows_one_column_and_the_sidebar_as_a_drawer(viewer):
    viewer.page.set_viewport_size(PHONE)
    page = viewer.open(AGENT, SESSION, at=14).page
    side = page.get_by_role("navigation", name="Agents and sessions")
    expect(side).to_be_hidden()
    page.get_by_role("button", name="Sessions").click()
    expect(side).to_be_visible()
    side.get_by_role("button", name=LONG_AGENT).click()
    side.get_by_role("link", name=re.compile(LONG)).click()
    expect(side).to_be_hidden()
    expect(page.get_by_role("heading", level=1)).to_contain_text(LONG)
    for view in ("state", "compare", "growth", "snapshots"):
        viewer.open(AGENT, SESSION, at=14, view=view)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.get_by_role("button", name="Fork…").click()
    box = box_of(page.get_by_role("dialog"))
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
    page.keyboard.press("Escape")
