"""The pictures of docs/cli.md: output of commands after ``holdfast demo``.

``python tests/docs/pictures.py`` writes them. They are reproducible, as the only time in them is
replaced, have a background that suits light and dark pages, and load no fonts.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

IMAGES = Path(__file__).parents[2] / "docs" / "images"
COMMANDS = {
    "show": ["holdfast", "state", "show", "incident.json"],
    "diff": ["holdfast", "state", "diff", "ses_ports", "incident.json"],
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
A_TIME = "2026-06-01T09:30:00.000000Z"
NARROWEST = 80
END_OF_LINE = re.compile(r"<text[^>]*>\n</text>")
THEME = TerminalTheme(
    (0x1B, 0x24, 0x2C),  # background
    (0xD8, 0xDE, 0xE3),  # text
    [
        (0x1B, 0x24, 0x2C),
        (0xFF, 0x8A, 0x80),
        (0x7F, 0xD9, 0xA8),
        (0xF2, 0xC9, 0x6D),
        (0x8A, 0xB8, 0xF5),
        (0xD7, 0xA6, 0xF0),
        (0x6F, 0xD3, 0xDB),
        (0xD8, 0xDE, 0xE3),
    ],
)
FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
.{unique_id}-title {{ font-family: system-ui, sans-serif; font-size: 16px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run_demo(folder: Path) -> None:
    """Run the demo in an empty folder."""
    run_command(["holdfast", "demo", "--folder", str(folder)], folder.parent)


def run_command(command: list[str], folder: Path) -> str:
    """Return what a command prints to a colour terminal."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "NO_COLOR" and not name.startswith("HOLDFAST_")
    }
    environment |= {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        encoding="utf-8",
    ).stdout


def draw(name: str, folder: Path) -> str:
    """Return a command and its output as an SVG."""
    command = COMMANDS[name]
    output = TIME.sub(A_TIME, run_command(command, folder))
    shown = Text.assemble(("$ ", "dim"), " ".join(command), "\n").append(Text.from_ansi(output))
    width = max(NARROWEST, *(line.cell_len for line in shown.split("\n")))
    console = Console(
        record=True,
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        _environ={},
    )
    console.print(shown, soft_wrap=True)
    drawn = console.export_svg(title="", theme=THEME, code_format=FORMAT, unique_id=name)
    lines = (line.strip() for line in END_OF_LINE.sub("\n", drawn).splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def main() -> None:
    """Write all pictures."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "demo"
        run_demo(folder)
        for name in COMMANDS:
            (IMAGES / f"{name}.svg").write_text(draw(name, folder), encoding="utf-8")


if __name__ == "__main__":
    main()
