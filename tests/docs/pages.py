"""A page of the docs, run as a reader would: its blocks in order, in one empty folder.

A `python` block is run; one with a title is a file of that name. A `console` block is a transcript:
what stands after ``$`` is run, and what follows is what it must print. Ids and times are others
each time, so any will do; an id that was shown stands for the printed one in later commands. ``…``
stands for anything. A command that ends with another code than 0 says so: ``# ends with 1``.

Commands of Holdfast run in this process, which is a tenth of the work of starting one each.
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
# Plugins of pytest that are installed here for other tests, each of which takes its time to load.
OTHERS = ("schemathesis", "langsmith_plugin", "anyio", "xdist", "timeout", "hypothesispytest")
QUICK = {"PYTEST_ADDOPTS": " ".join(f"-p no:{name}" for name in (*OTHERS, "cacheprovider"))}
COMMAND = typer.main.get_command(app)


@dataclass(frozen=True)
class Block:
    """One block of a page, and the line that it begins in."""

    language: str
    title: str | None
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        title = TITLE.search(match[3])
        inside = re.sub(rf"^{match[1]}", "", match[4], flags=re.MULTILINE)
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(match[2], title[1] if title else None, inside, line))
    return found


@dataclass
class Reader:
    """Somebody who tries a page in the working folder, from its beginning to its end."""

    page: Path
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "__main__"})
    ids: dict[str, str] = field(default_factory=dict)

    def follow(self) -> None:
        """Run what can be run of the page."""
        for block in blocks(self.page):
            if block.language == "python" and block.title is None:
                code = compile("\n" * block.line + block.text, str(self.page), "exec")
                exec(code, self.names)
            elif block.title is not None:
                Path(block.title).parent.mkdir(parents=True, exist_ok=True)
                Path(block.title).write_text(block.text, encoding="utf-8")
            elif block.language == "console":
                for command, wanted in steps(block.text):
                    self.step(command, wanted, block.line)

    def step(self, command: str, wanted: str, line: int) -> None:
        """Run one command of a transcript, and compare what it prints."""
        for shown, real in self.ids.items():
            command = command.replace(shown, real)
        code, printed = run(command)
        ends_with = ENDS_WITH.search(command)
        where = f"{self.page.name}, line {line}: {command}\n{printed}"
        assert code == (int(ends_with[1]) if ends_with else 0), where
        if not wanted.strip():
            return
        pattern, shown_ids = self.expected(wanted)
        found = re.fullmatch(pattern, tidy(printed))
        assert found, f"{where}\nis not what the page shows:\n{wanted}"
        self.ids |= dict(zip(shown_ids, found.groups(), strict=True))

    def expected(self, wanted: str) -> tuple[str, list[str]]:
        """What is shown as a pattern, and the ids in it that are not known yet."""
        parts, new, end, text = [], [], 0, tidy(wanted)
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


def tidy(text: str) -> str:
    """Without what nobody sees at the ends of lines and of all."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def steps(transcript: str) -> list[tuple[str, str]]:
    """The commands of a transcript, each with what it prints."""
    joined = transcript.replace("\\\n", "")
    first, *parts = re.split(r"^\$ ", joined, flags=re.MULTILINE)
    assert not first.strip(), f"a console block begins with a command after $: {first}"
    return [(command, wanted) for command, _, wanted in (part.partition("\n") for part in parts)]


def run(command: str) -> tuple[int, str]:
    """How a command ends, and what it prints."""
    if killed := KILLED.fullmatch(command):
        return 0, killed_in_the_middle(killed[1])
    words = shlex.split(command, comments=True)
    plain = not re.search(r"[|<>;&$`]", command)
    if plain and words[0] == "holdfast":
        return captured(lambda: COMMAND.main(words[1:], prog_name="holdfast"))
    if plain and words[0] == "python" and words[1].endswith(".py"):
        return captured(lambda: runpy.run_path(words[1], run_name="__main__"))
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


def captured(work) -> tuple[int, str]:
    """Run something in this process as if it were one of its own."""
    screen = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    code = 0
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        try:
            work()
        except SystemExit as ended:
            code = ended.code or 0
    return code, screen.buffer.getvalue().decode()


def killed_in_the_middle(program: str) -> str:
    """Start a program, kill it after three lines as its reader does after some seconds."""
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as process:
        printed = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    return "".join(printed)
