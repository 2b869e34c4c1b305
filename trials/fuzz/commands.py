"""The command line with invalid files and arguments.

A command exits with 0, or with 1 or 2 and one clear error. Only commands that write nothing are
tried, as a path may be any that the user means.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from importlib import import_module
from pathlib import Path

from hypothesis import strategies as st

import holdfast
from holdfast import IntegrityError, Session, SnapshotManager
from holdfast.importers.registry import BUILT_IN
from trials.commands import run_command
from trials.fuzz.strategies import WORDS, dump_json, mutated_bytes, mutated_json, mutated_texts
from trials.fuzz.target import Target

FILE = "document.json"
CALLS = (
    ("state", "show", FILE),
    ("state", "show", FILE, "--format", "json"),
    ("state", "import", FILE, "--dry-run"),
    ("state", "import", FILE, "--dry-run", "--agent", "other", "--session", "s"),
    ("state", "list"),
    ("state", "list", "research-bot", "--format", "json"),
    ("state", "diff", FILE, "ses_1", "--agent", "research-bot"),
    ("state", "diff", FILE, "ses_1", "--format", "json"),
    ("state", "verify", "ses_1"),
    ("state", "verify", "--format", "json"),
    ("replay", FILE, "--from", "2", "--to", "3"),
    ("replay", "ses_1"),
)
VERBS = ("show", "import", "list", "diff", "verify", "replay")
OPTIONS = st.sampled_from(("--from", "--to", "--snapshot", "--tag", "--"))
Call = tuple[tuple[str, ...], bytes]


def is_safe(call: tuple[str, ...]) -> bool:
    """Return whether a call writes nothing, and names no store or file elsewhere."""
    verb = call[1] if call[0] == "state" else call[0]
    if verb not in VERBS or (verb == "import" and "--dry-run" not in call):
        return False
    outside = ("/", "~")
    return not any("://" in w or "--st" in w or ".." in w or w.startswith(outside) for w in call)


@st.composite
def calls(draw: st.DrawFn, document: dict[str, object]) -> Call:
    """Generate a call with another argument or another file."""
    call, data = draw(st.sampled_from(CALLS)), dump_json(document)
    match draw(st.sampled_from(("file", "argument", "more"))):
        case "file":
            data = draw(mutated_json([document]) | mutated_bytes([data]))
        case "argument":
            at = draw(st.integers(1, len(call) - 1))
            call = (*call[:at], draw(mutated_texts([call[at]])), *call[at + 1 :])
        case _:
            call = (*call, *draw(st.lists(WORDS | OPTIONS, max_size=3)))
    return call, data


class Commands(Target):
    """Commands that only read, in this process."""

    refusals = (IntegrityError,)
    """Raised here for the exit codes 1 and 2."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder / "commands"
        self._folder.mkdir(exist_ok=True)
        os.environ["HOLDFAST_STORE"] = f"sqlite:///{self._folder}/state.db"
        document = asyncio.run(self._fill())
        for module in BUILT_IN.values():
            import_module(module)
        self.valid = [(call, dump_json(document)) for call in CALLS]
        self.inputs = calls(document).filter(lambda each: is_safe(each[0]))

    async def _fill(self) -> dict[str, object]:
        async with holdfast.open_state_store() as store:
            async with Session.open(store, agent_id="research-bot", session_id="ses_1") as session:
                session.add_message("user", "Compare the two")
                session.set("plan", ("read", b"x"))
                await session.save(tags={"turn": "1"})
            manager = SnapshotManager(state_store=store)
            return (await manager.export_session(agent_id="research-bot")).to_dict()

    def check(self, data: Call) -> None:
        """Run the command in the folder of the trial."""
        words, document = data
        (self._folder / FILE).write_bytes(document)
        with contextlib.chdir(self._folder):
            code, _, error = run_command(*words)
        assert code in (0, 1, 2), f"exit code {code}: {error[:200]}"
        assert "Traceback (most recent call last)" not in error
        names = {path.name for path in self._folder.iterdir()}
        assert names <= {FILE, "state.db", "state.db-wal", "state.db-shm"}, f"wrote {names}"
        if code:
            repeated = sum(map(len, words))
            raise IntegrityError(error[2 * repeated :])  # usage errors repeat what was typed
