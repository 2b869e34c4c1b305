"""Run a page of the docs as a reader would: its blocks in order, in an empty folder.

A `python` block is executed, or written to a file if it has a title. A `console` block is a
transcript: the command after ``$`` is run, and the lines below are its expected output. Ids and
times match any others; an id shown on the page is replaced by the printed one in later commands.
``…`` matches anything. ``# ends with 1`` gives an exit code other than 0.

Commands of Holdfast run in this process, which takes a tenth of the time.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import typer

from holdfast.cli.main import app

BLOCK = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([^"]+)"')
SPECIAL = re.compile(
    r"(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"|(?P<time>\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d\.\d+| \d\d:\d\d:\d\d)Z)"
    r"|(?P<rest>^…\n)"
    r"|(?P<some>…)",
    re.MULTILINE,
)
KILLED = re.compile(r"python (\S+) & sleep \d+; kill -9 \$!")
ENDS_WITH = re.compile(r"# ends with (\d+)$")
# pytest plugins of other packages, which are slow to load.
OTHERS = ("schemathesis", "langsmith_plugin", "anyio", "xdist", "timeout", "hypothesispytest")
QUICK = {"PYTEST_ADDOPTS": " ".join(f"-p no:{name}" for name in (*OTHERS, "cacheprovider"))}
COMMAND = typer.main.get_command(app)


@dataclass(frozen=True)
class Block:
    """A block of a page, and its first line."""

    language: str
    title: str | None
    text: str
    line: int


def parse_blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        title = TITLE.search(match[3])
        inside = re.sub(rf"^{match[1]}", "", match[4], flags=re.MULTILINE)
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(match[2], title[1] if title else None, inside, line))
    return found


@dataclass
class PageRunner:
    """Runs a page in the working directory."""

    page: Path
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "__main__"})
    ids: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Run all blocks of the page."""
        for block in parse_blocks(self.page):
            if block.language == "python" and block.title is None:
                code = compile("\n" * block.line + block.text, str(self.page), "exec")
                exec(code, self.names)
            elif block.title is not None:
                Path(block.title).parent.mkdir(parents=True, exist_ok=True)
                Path(block.title).write_text(block.text, encoding="utf-8")
            elif block.language == "console":
                for command, wanted in split_transcript(block.text):
                    self.run_step(command, wanted, block.line)

    def run_step(self, command: str, wanted: str, line: int) -> None:
        """Run a command of a transcript, and compare its output."""
        for shown, real in self.ids.items():
            command = command.replace(shown, real)
        code, printed = run_command(command)
        ends_with = ENDS_WITH.search(command)
        where = f"{self.page.name}, line {line}: {command}\n{printed}"
        assert code == (int(ends_with[1]) if ends_with else 0), where
        if not wanted.strip():
            return
        pattern, shown_ids = self.make_pattern(wanted)
        found = re.fullmatch(pattern, strip_blank_lines(printed))
        assert found, f"{where}\nis not what the page shows:\n{wanted}"
        self.ids |= dict(zip(shown_ids, found.groups(), strict=True))

    def make_pattern(self, wanted: str) -> tuple[str, list[str]]:
        """Return the expected output as a pattern, and the ids in it that are new."""
        parts, new, end, text = [], [], 0, strip_blank_lines(wanted)
        for special in SPECIAL.finditer(text):
            parts.append(re.escape(text[end : special.start()]))
            end = special.end()
            shown = special["id"]
            if shown is None:
                wild = {"time": r"\d{4}-\d\d-\d\d[T ]\S+Z", "rest": r"(?:.*\n)*", "some": ".*"}
                parts.append(wild[special.lastgroup])
            elif shown in self.ids:
                parts.append(re.escape(self.ids[shown]))
            elif shown in new:
                parts.append(rf"\{new.index(shown) + 1}")
            else:
                new.append(shown)
                parts.append(r"([0-9a-f-]{36})")
        return "".join([*parts, re.escape(text[end:])]), new


def strip_blank_lines(text: str) -> str:
    """Strip trailing whitespace and outer blank lines."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def split_transcript(transcript: str) -> list[tuple[str, str]]:
    """Return the commands of a transcript, each with its output."""
    joined = transcript.replace("\\\n", "")
    first, *parts = re.split(r"^\$ ", joined, flags=re.MULTILINE)
    assert not first.strip(), f"a console block begins with a command after $: {first}"
    return [(command, wanted) for command, _, wanted in (part.partition("\n") for part in parts)]


def run_command(command: str) -> tuple[int, str]:
    """Run a command; return its exit code and output."""
    if killed := KILLED.fullmatch(command):
        return 0, run_and_kill(killed[1])
    words = shlex.split(command, comments=True)
    plain = not re.search(r"[|<>;&$`]", command)
    if plain and words[0] == "holdfast":
        return capture(lambda: COMMAND.main(words[1:], prog_name="holdfast"))
    if plain and words[0] == "python" and words[1].endswith(".py"):
        return capture(lambda: runpy.run_path(words[1], run_name="__main__"))
    done = subprocess.run(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"} | QUICK,
        encoding="utf-8",
        check=False,
    )
    return done.returncode, done.stdout


def capture(work) -> tuple[int, str]:
    """Call a function; return its exit code and output."""
    screen = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    code = 0
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        try:
            work()
        except SystemExit as ended:
            code = ended.code or 0
    return code, screen.buffer.getvalue().decode()


def run_and_kill(program: str) -> str:
    """Start a program, and kill it after three lines of output."""
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as process:
        printed = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    return "".join(printed)
