"""The command line on files and names that are not what they should be.

A command ends with 0, or with 1 or 2 and one clear error. Only commands that write nothing are
tried, as any path that is named to the others is one that the user may mean.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from random import Random

import typer
from hypothesis import strategies as st

import holdfast
from holdfast import IntegrityError, Session, SnapshotManager
from holdfast.cli.main import app
from holdfast.importers.registry import BUILT_IN
from trials.fuzz import junk
from trials.fuzz.mutation import changed_bytes, changed_json, changed_text, written
from trials.fuzz.stored import content_of
from trials.fuzz.trying import Target, Wrong

FILE = "document.json"
CALLS = (
    ["state", "show", FILE],
    ["state", "show", FILE, "--format", "json"],
    ["state", "import", FILE, "--dry-run"],
    ["state", "import", FILE, "--dry-run", "--agent", "other", "--session", "s"],
    ["state", "list"],
    ["state", "list", "research-bot", "--format", "json"],
    ["state", "diff", FILE, "ses_1", "--agent", "research-bot"],
    ["state", "diff", FILE, "ses_1", "--format", "json"],
    ["state", "verify", "ses_1"],
    ["state", "verify", "--format", "json"],
    ["replay", FILE, "--from", "2", "--to", "3"],
    ["replay", "ses_1"],
)
VERBS = ("show", "import", "list", "diff", "verify", "replay")


class Commands(Target):
    """Commands that look, in this process."""

    name = "commands"
    refusals = (IntegrityError,)
    """What stands here for a command that ended with 1 or 2."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder / self.name
        self._folder.mkdir(exist_ok=True)
        self._url = f"sqlite:///{self._folder}/state.db"
        self._document, self._content = asyncio.run(self._filled())
        for module in BUILT_IN.values():
            import_module(module)  # which is otherwise done when a file is read
        self._command = typer.main.get_command(app)

    async def _filled(self) -> tuple[bytes, dict[str, bytes]]:
        async with holdfast.open_state_store(self._url) as store:
            opened = Session.open(store, agent_id="research-bot", session_id="ses_1")
            async with opened as session:
                session.add_message("user", "Compare the two")
                session.set("plan", ("read", b"x"))
                await session.save(tags={"turn": "1"})
            manager = SnapshotManager(state_store=store)
            document = await manager.export_session(agent_id="research-bot")
            return written(document.to_dict()), await content_of(store)

    @property
    def corpus(self) -> Sequence[bytes]:
        """A call of every command that looks."""
        return [self._input(call, self._document) for call in CALLS]

    def _input(self, call: Sequence[str], file: bytes) -> bytes:
        return json.dumps([list(call), base64.b64encode(file).decode()]).encode()

    def mutated(self, rng: Random) -> bytes:
        """A call with another argument, or of another file."""
        call, file = list(rng.choice(CALLS)), self._document
        if rng.randrange(2):
            change = changed_json if rng.randrange(3) else changed_bytes
            return self._input(call, change(rng, file))
        at = rng.randrange(1, len(call))
        call[at] = changed_text(rng, call[at])
        return self._input(call, file)

    def made_up(self) -> st.SearchStrategy[bytes]:
        """Calls with any words."""
        return st.builds(
            lambda call, more: self._input([*call, *more], self._document),
            st.sampled_from(CALLS),
            st.lists(
                junk.WORDS | st.sampled_from(("--from", "--to", "--snapshot", "--tag", "--")),
                max_size=3,
            ),
        )

    def attempt(self, data: bytes) -> None:
        """Run it, unless it could write elsewhere."""
        call, file = json.loads(data)
        if not self._only_looks(call):
            raise IntegrityError("not tried")
        (self._folder / FILE).write_bytes(base64.b64decode(file))
        code, said = self._run(call)
        if code not in (0, 1, 2):
            raise Wrong(f"{call!r:.200} ended with {code}: {said[:200]}")
        if "Traceback (most recent call last)" in said:
            raise Wrong(f"{call!r:.200} shows a traceback")
        names = {path.name for path in self._folder.iterdir()}
        if not names <= {FILE, "state.db", "state.db-wal", "state.db-shm"}:
            raise Wrong(f"{call!r:.200} left {names}")
        if code:
            # What was typed may be repeated.
            for word in call:
                said = said.replace(word, word[:20])
            raise IntegrityError(said)

    def _only_looks(self, call: list[str]) -> bool:
        verb = call[1] if call[0] == "state" else call[0]
        dry = verb != "import" or "--dry-run" in call
        return verb in VERBS and dry and not any(map(leads_elsewhere, call))

    def _run(self, call: list[str]) -> tuple[object, str]:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in "oe")
        before, os.environ["HOLDFAST_STORE"] = os.environ.get("HOLDFAST_STORE"), self._url
        here = Path.cwd()
        os.chdir(self._folder)
        code: object = 0
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                self._command.main(call, prog_name="holdfast")
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            os.chdir(here)
            del os.environ["HOLDFAST_STORE"]
            if before is not None:
                os.environ["HOLDFAST_STORE"] = before
        err.seek(0)
        return code, err.read()


def leads_elsewhere(word: str) -> bool:
    """Whether a word may name another store, or a file that the one who typed it may mean."""
    return "://" in word or "--st" in word or word.startswith(("/", "~")) or ".." in word
