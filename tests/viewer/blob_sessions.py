"""Sample sessions with images, large texts, attachments and files."""

from __future__ import annotations

import base64
import hashlib
import random
import struct
import zlib

from holdfast import BlockingSession
from holdfast.blobs.source import BytesSource
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
    session.record_with_blobs("workspace.captured", None, changes=changes, blobs=sources)
