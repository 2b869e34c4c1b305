"""Light and dark, keys alone, a screen reader, a phone; the page of the API; the pictures."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from support.http_server import served
from viewer.looking import box_of, expect
from viewer.recordings import AGENT, LONG, LONG_AGENT, SESSION, recorded, store_with

PHONE = {"width": 390, "height": 844}
FOLDER = Path(__file__).parents[2] / "docs" / "images"

# The contrast of every text with what is behind it, as WCAG counts it; those below what it wants.
CONTRAST = """() => {
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
def test_every_text_can_be_told_from_its_ground(look, scheme):
    page = look.page
    page.emulate_media(color_scheme=scheme)
    for step in (12, 14, 16, 23):
        look.at(AGENT, SESSION, at=step)
        assert page.evaluate(CONTRAST) == []
    look.at(AGENT, SESSION, at=16, view="snapshots")
    assert page.evaluate(CONTRAST) == []
    look.at(AGENT, SESSION, at=16, view="compare", **{"from": 11, "to": 16})
    expect(page.locator(".diff-entry").first).to_be_visible()
    assert page.evaluate(CONTRAST) == []
    page.get_by_role("button", name="Restore…").click()
    expect(page.locator("dialog .main")).to_be_enabled()
    assert page.evaluate(CONTRAST) == []
    page.keyboard.press("Escape")


def test_the_theme_follows_the_system_until_somebody_chooses(look):
    page = look.at().page
    page.emulate_media(color_scheme="dark")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Theme: auto").click()
    light = page.evaluate(ground)
    assert light != dark
    page.reload()
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    assert page.evaluate(ground) == light
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(ground) == dark
    page.get_by_role("button", name="Theme: dark").click()


# ------------------------------------------------------------------------------------------ keys


def test_the_whole_page_is_reached_by_the_tab_key_and_focus_is_seen(look):
    page = look.at(AGENT, SESSION, at=14).page
    page.reload()
    look.at(AGENT, SESSION, at=14)
    reached = []
    for _ in range(70):
        page.keyboard.press("Tab")
        name, is_seen = page.evaluate(
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
        assert is_seen, f"nobody sees that {name} has the focus"
        if name == "body":
            break
    for wanted in ("skip", "theme", "slider", "tab-moment", "conversation", "Previous event"):
        assert wanted in reached


def test_the_skip_link_leads_past_the_lists(look):
    page = look.at(AGENT, SESSION, at=3).page
    page.reload()
    look.at(AGENT, SESSION, at=3)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the session")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    assert f"{AGENT}/{SESSION}" in page.evaluate("location.hash")


def test_views_are_changed_by_arrows(look):
    page = look.at(AGENT, SESSION).page
    page.get_by_role("tab", name="This moment").focus()
    for name in ("Compare", "Growth", "Snapshots", "This moment"):
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name=name)).to_be_focused()
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()


def test_a_dialog_takes_the_focus_and_gives_it_back(look):
    page = look.at(AGENT, SESSION).page
    page.get_by_role("button", name="Export…").focus()
    page.keyboard.press("Enter")
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate("!document.activeElement.closest('main, nav, header')")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Export…")).to_be_focused()


# --------------------------------------------------------------------------------- screen readers


def test_a_screen_reader_finds_landmarks_headings_and_names(look):
    page = look.fresh().at(AGENT, SESSION, at=14).page
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


def test_a_step_is_announced_when_it_has_come_to_rest(look):
    page = look.at(AGENT, SESSION, at=5).page
    page.get_by_role("button", name="Next event").click()
    expect(page.locator("[aria-live=polite]#announcer")).to_have_text(
        re.compile(r"^event 6 of 23, llm\.called, ")
    )


# ----------------------------------------------------------------------------------------- phone


def test_on_a_phone_there_is_one_column_and_the_lists_are_a_drawer(look):
    look.page.set_viewport_size(PHONE)
    page = look.at(AGENT, SESSION, at=14).page
    side = page.get_by_role("navigation", name="Agents and sessions")
    expect(side).to_be_hidden()
    page.get_by_role("button", name="Sessions").click()
    expect(side).to_be_visible()
    side.get_by_role("button", name=LONG_AGENT).click()
    side.get_by_role("link", name=re.compile(LONG)).click()
    expect(side).to_be_hidden()
    expect(page.get_by_role("heading", level=1)).to_contain_text(LONG)
    for view in ("moment", "compare", "growth", "snapshots"):
        look.at(AGENT, SESSION, at=14, view=view)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.get_by_role("button", name="Fork…").click()
    box = box_of(page.get_by_role("dialog"))
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
    page.keyboard.press("Escape")


# ------------------------------------------------------------------------------------------- API


def test_the_page_of_the_api_tells_every_route(look):
    page = look.page
    page.goto(f"{look.url}docs")
    expect(page.get_by_role("heading", name=re.compile("^Holdfast API"))).to_be_visible()
    paths = page.evaluate(
        "fetch('openapi.json').then((got) => got.json()).then((api) => api.paths)"
    )
    routes = sum(len(set(item) & {"get", "post", "delete"}) for item in paths.values())
    expect(page.locator("details.route")).to_have_count(routes)
    page.get_by_role("link", name=re.compile("POST.*restore$")).first.click()
    opened = page.locator("details.route[open]")
    expect(opened).to_have_count(1)
    expect(opened.get_by_role("row").filter(has_text="dry_run")).to_contain_text("Default: false")
    expect(opened).to_contain_text("Answers")
    assert page.evaluate(CONTRAST) == []


def test_below_a_prefix_all_works_the_same(open_look, browser, state_store):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from holdfast.server import create_app

    def below():
        return Starlette(routes=[Mount("/holdfast", create_app(state_store))])

    with served(below) as server:
        look = open_look(server)
        look.url += "holdfast/"
        page = look.at(AGENT, SESSION, at=3).page
        expect(page.locator("article")).to_have_count(1)
        page.get_by_role("link", name="API", exact=True).click()
        expect(page.locator("details.route").first).to_be_visible()


# -------------------------------------------------------------------------------------- pictures


@pytest.mark.skipif(not os.environ.get("HOLDFAST_SCREENSHOTS"), reason="HOLDFAST_SCREENSHOTS=1")
def test_the_pictures_of_the_documentation_are_taken(open_look, browser):
    from holdfast.server import create_app

    state_store = store_with(lambda store: recorded(store, pause=0.4))
    with served(lambda: create_app(state_store)) as server:
        look = open_look(server)
        page = look.page
        page.emulate_media(color_scheme="light")
        take(look.at(AGENT, SESSION, at=14), "moment")
        look.at(AGENT, SESSION, at=16, view="compare", **{"from": 11, "to": 16})
        expect(page.locator(".diff-entry").first).to_be_visible()
        take(look, "compare")
        page.emulate_media(color_scheme="dark")
        take(look.fresh().at(AGENT, SESSION, at=12), "dark")
        take(look.at(AGENT, SESSION, at=15, view="growth"), "growth")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(PHONE)
        take(look.at(AGENT, SESSION, at=14), "phone")


def take(look, name: str) -> None:
    look.page.wait_for_timeout(400)
    look.page.evaluate("document.activeElement.blur()")
    look.page.screenshot(path=FOLDER / f"viewer-{name}.png")
