"""Sample sessions with images, large texts, attachments and files."""

from __future__ import annotations

import base64
import hashlib
import random
import struct
import zlib

from holdfast import BlockingSession
from holdfast.blobs.source import BytesSource
from holdfast.sessions.workspace import CAPTURED
from holdfast.stores.portal import get_portal

AGENT = "vision-bot"
SESSION = "ses_images"
FILES = "ses_files"
SCRIPT = "<script>window.hacked=1</script>"


def make_png(width, height, seed=1):
    """Return an image of coloured stripes with some noise, so that it does not compress well."""
    noise = random.Random(seed)
    rows = []
    for y in range(height):
        row = bytearray(b"\x00")
        for x in range(width):
            shade = 60 + 160 * ((x // 24 + y // 24) % 2)
            row += bytes((shade, noise.randrange(256), 255 - shade))
        rows.append(bytes(row))

    return encode_png(width, height, rows)


def encode_png(width, height, rows):
    """Return an image, given its rows of pixels."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(rows))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


PNG = make_png(320, 240)
SMALL_PNG = make_png(48, 48, 2)
LONG_TEXT = "\n".join(f"{number:>5} the quick brown fox jumps over it" for number in range(5000))
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40" onload="window.hacked=1">'
    f'{SCRIPT}<rect width="80" height="40" fill="teal"/></svg>'
).encode()
HTML = f"<html>{SCRIPT}<img src=x onerror=window.hacked=1>hello</html>".encode()


def image_session(state_store) -> None:
    """Record images as providers send them, large texts and attachments, one of them missing."""
    with BlockingSession.open(state_store, agent_id=AGENT, session_id=SESSION) as session:
        encoded = base64.b64encode(PNG).decode()
        session.add_message("user", "What is in these pictures?")
        source = {"type": "base64", "media_type": "image/png", "data": encoded}
        session.add_message("user", [{"type": "image", "source": source}])
        url = f"data:image/png;base64,{encoded}"
        session.add_message("user", [{"type": "image_url", "image_url": {"url": url}}])
        chart = session.attach(SMALL_PNG, media_type="image/png", name="chart.png")
        page = session.attach(HTML, media_type="text/html", name="page.html")
        drawing = session.attach(SVG, media_type="image/svg+xml", name="drawing.svg")
        archive = session.attach(bytes(range(256)) * 20, name="archive.bin")
        session.add_message("user", ["See the files.", chart, page, drawing, archive])
        arguments = {"path": "notes.txt", "text": LONG_TEXT}
        call = {"type": "tool_use", "id": "call_1", "name": "write", "input": arguments}
        session.add_message("assistant", [call])
        result = {"type": "tool_result", "tool_use_id": "call_1", "content": LONG_TEXT}
        session.add_message("user", [result])
        session.save()
        session.set("raw", PNG)
        session.set("notes", LONG_TEXT)
        session.set("chart", chart)
        session.set("lost", session.attach(b"to be lost", name="lost.txt"))
        session.record("tool.called", {"picture": chart})
        session.save()
        prefix = session.location.prefix
    lost = hashlib.sha256(b"to be lost").hexdigest()
    get_portal().call(state_store.delete(f"{prefix}blobs/{lost}/000000"))


README = "# Reports\n\nCompare prices.\n"
OLD_CODE = "".join(f"def step_{number}():\n    return {number}\n\n" for number in range(12))
NEW_CODE = OLD_CODE.replace("return 3", "return 30").replace("return 9", "return 90")
CHANGED = {"src/agent.py": NEW_CODE, f"src/{SCRIPT}.txt": "new\n", "docs/chart.png": SMALL_PNG}


def files_session(state_store) -> None:
    """Record a workspace in two steps: five files, then one is changed, one removed, two added."""
    with BlockingSession.open(state_store, agent_id=AGENT, session_id=FILES) as session:
        session.add_message("user", "Fix the agent")
        first = {
            "README.md": README,
            "src/agent.py": OLD_CODE,
            "src/old.py": "print('old')\n",
            "docs/guide/start.md": "Start here.\n",
            "run.sh": "#!/bin/sh\nexec python src/agent.py\n",
        }
        capture(session, first, links={"latest": "docs/guide"})
        session.save()
        session.add_message("assistant", "I changed two functions.")
        capture(session, CHANGED, delete=["src/old.py"])
        session.save()


def code_session(state_store) -> None:
    """Record a coding agent that reads a chart and fixes a function."""
    with BlockingSession.open(
        state_store, agent_id="coder", session_id="ses_fix_prices"
    ) as session:
        session.status = "running"
        capture(session, {**SHOP, "src/prices.py": PRICES})
        session.add_message("user", "The total is wrong for more than ten items. Fix it.")
        chart = session.attach(make_chart(), media_type="image/png", name="totals.png")
        session.add_message("user", ["This is what customers pay:", chart])
        session.save(tags={"step": "before"})
        session.add_message("assistant", "The discount was applied twice. I changed `total`.")
        capture(session, {"src/prices.py": FIXED_PRICES, "tests/test_prices.py": TEST_PRICES})
        session.save(tags={"step": "fixed"})


SHOP = {
    "README.md": "# Shop\n\nPrices and totals.\n",
    "pyproject.toml": '[project]\nname = "shop"\n',
    "src/cart.py": "class Cart:\n    items: list\n",
    "docs/guide.md": "Start here.\n",
}
PRICES = """DISCOUNT = 0.9


def subtotal(items):
    price = sum(item.price for item in items)
    return price * DISCOUNT if len(items) > 10 else price


def total(items):
    price = subtotal(items)
    if len(items) > 10:
        price *= DISCOUNT
    return round(price, 2)
"""
FIXED_PRICES = PRICES.replace(
    "    price = subtotal(items)\n    if len(items) > 10:\n        price *= DISCOUNT\n"
    "    return round(price, 2)\n",
    "    return round(subtotal(items), 2)\n",
)
TEST_PRICES = "def test_discount_is_applied_once():\n    assert total(items(20)) == 18.0\n"


def make_chart():
    """Return an image of a bar chart."""
    width, height = 360, 150
    bars = [30, 46, 61, 75, 92, 70, 79, 88, 97, 106]

    def colour(x, y):
        number, at = divmod(x - 12, 34)
        is_bar = 0 <= number < len(bars) and at < 24 and height - 10 - y < bars[number]
        if y == height - 10:
            return b"\x60\x6a\x70"
        if is_bar and y < height - 10:
            return b"\xc2\x4a\x3a" if number > 4 else b"\x0d\x73\x70"
        return b"\xff\xff\xff"

    rows = (b"\x00" + b"".join(colour(x, y) for x in range(width)) for y in range(height))
    return encode_png(width, height, rows)


def capture(session, files, *, links=None, delete=()) -> None:
    """Record files as a workspace does."""
    entries, sources = [], []
    for path, text in files.items():
        content = text if isinstance(text, bytes) else text.encode()
        source = BytesSource(content)
        sources.append(source)
        mode = 0o755 if path.endswith(".sh") else 0o644
        entries.append(
            ("files", path, {"digest": source.digest, "size": source.size, "mode": mode})
        )
    for path, target in (links or {}).items():
        entries.append(("files", path, {"link": target, "mode": 0o777}))
    changes = {"set": entries, "delete": [("files", path) for path in delete]}
    session.record_with_blobs(CAPTURED, None, changes=changes, blobs=sources)
