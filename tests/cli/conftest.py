"""Run commands in this process, over a sample store."""

from __future__ import annotations

import asyncio
import io
import shutil
import sys
from dataclasses import dataclass

import pytest
import typer

import holdfast
from holdfast.cli.main import app

ODD = "[bold]loud[/] :bug: \x1b[2J\\"
STORE = "sqlite:///state.db"
COMMAND = typer.main.get_command(app)  # built once: slower than most commands


@dataclass(frozen=True)
class CommandResult:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    def assert_failed(self, *words: str) -> None:
        """Check that the command failed with one line and a hint."""
        lines = self.err.splitlines()
        assert self.code == 1, self
        assert [line.split(":")[0] for line in lines] == ["error", "hint"], self.err
        assert "Traceback" not in self.err + self.out
        for word in words:
            assert word in self.err, self.err

    def assert_usage_error(self, *words: str) -> None:
        """Check that the command was refused as wrong usage."""
        assert self.code == 2, self
        assert self.out == ""
        assert "Usage: holdfast" in self.err
        assert len([line for line in self.err.splitlines() if line.startswith("Error: ")]) == 1
        for word in words:
            assert word in " ".join(self.err.split()), self.err


class TerminalInput(io.StringIO):
    """A stdin that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def isolate_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("HOLDFAST_STORE", "HOLDFAST_ENVIRONMENT", "HOLDFAST_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command; ``typed`` is typed at a terminal."""

    def call(*arguments: str, typed: str | None = None) -> CommandResult:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.StringIO() if typed is None else TerminalInput(typed))
        with pytest.raises(SystemExit) as ended:
            COMMAND.main(list(arguments), prog_name="holdfast")
        printed = capsys.readouterr()
        return CommandResult(ended.value.code or 0, printed.out, printed.err)

    return call


@dataclass(frozen=True)
class Sample:
    """The snapshot ids of the sample store."""

    first: str
    second: str


async def fill_store(url: str) -> Sample:
    """Write the sessions of three agents, two of which share a session."""
    async with holdfast.open_state_store(url) as store:
        async with holdfast.Session.open(store, agent_id="research-bot", session_id="ses_1") as one:
            one.status = "running"
            one.add_message("user", "Compare the two")
            one.set("plan", ["read", "compare"])
            one.set("old", 1)
            first = await one.save(tags={"turn": "1", "odd": ODD})
            one.add_message("assistant", ODD)
            one.set("plan", ["answer"])
            one.set("card", {"mail": "ada@example.com"})
            one.delete("old")
            one.record("tool.called", {"tool": ODD})
            second = await one.save(tags={"turn": "2"})
        for agent in ("ann", "bob"):
            async with holdfast.Session.open(
                store, agent_id=agent, session_id="ses_shared"
            ) as other:
                other.add_message("user", f"hello {agent}")
    return Sample(first.snapshot_id, second.snapshot_id)


@pytest.fixture(scope="session")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    sample = asyncio.run(fill_store(f"sqlite:///{folder}/state.db"))
    return folder, sample


@pytest.fixture
def sample(original, tmp_path, monkeypatch):
    """Copy the sample store and set ``HOLDFAST_STORE`` to it."""
    folder, found = original
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("HOLDFAST_STORE", STORE)
    return found


@pytest.fixture
def document(run, sample, tmp_path):
    """Export the session to a file."""
    assert run("state", "export", "research-bot", "-o", "incident.json").code == 0
    return tmp_path / "incident.json"


@pytest.fixture
def entries(tmp_path):
    """Return a function that reads all entries of a store."""

    async def read_all(url: str) -> dict[str, bytes]:
        async with holdfast.open_state_store(url) as store:
            keys = [key async for key in store.list("")]
            return {key: entry.value for key, entry in (await store.get_many(keys)).items()}

    return lambda url=STORE: asyncio.run(read_all(url))
