"""Transcripts of Claude Code become sessions that the SDK resumes, and are written back."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk import InMemorySessionStore, import_session_to_store
from typer.testing import CliRunner

import holdfast.importers
import holdfast.importers.claude_code
from adapters.claude_agent.scripted_api import ScriptedClaude, ask, find_texts, script
from adapters.claude_agent.transcripts import KEY, TALK, make_user
from holdfast import Session, SnapshotManager, open_state_store
from holdfast.adapters.claude_agent import HoldfastSessionStore, to_transcript, write_transcript
from holdfast.cli.export_transcript import validate_subpath
from holdfast.cli.main import app
from holdfast.errors import InvalidDocumentError
from importers.graphs import check_imports
from support.async_tests import async_test

SESSION = KEY["session_id"]
URL = "sqlite:///agents.db"
HELP = [make_user("find chairs", isSidechain=True), {"type": "system", "uuid": "s1"}]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of Claude Code with a session and a sub-agent."""
    project = tmp_path / "claude/projects/-srv-agent"
    subagents = project / SESSION / "subagents/workflows/r-1"
    subagents.mkdir(parents=True)
    write_lines(project / f"{SESSION}.jsonl", TALK)
    write_lines(subagents / "agent-a1.jsonl", HELP)
    (subagents / "agent-a1.meta.json").write_text('{"agentType": "helper"}')
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.chdir(tmp_path)
    return project


def write_lines(path, entries):
    path.write_text("".join(json.dumps(each) + "\n" for each in entries))


def run_command(*words, code=0):
    # In a thread, because tests run in an event loop.
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(CliRunner().invoke, app, ["state", *words, "--store", URL]).result()
    assert done.exit_code == code, done.output
    return done.output


@async_test
async def test_an_imported_transcript_is_what_the_sdk_imports(folder):
    theirs = InMemorySessionStore()
    await import_session_to_store(SESSION, theirs)
    output = run_command("import", str(folder / f"{SESSION}.jsonl"))
    assert f"imported 4 messages and 12 events into new session -srv-agent/{SESSION}" in output
    async with HoldfastSessionStore.from_url(URL) as ours:
        sub = {**KEY, "subpath": "subagents/workflows/r-1/agent-a1"}
        assert await ours.list_subkeys(KEY) == [sub["subpath"]]
        for key in (KEY, sub):
            assert await ours.load(key) == await theirs.load(key)
        (one,), (two,) = [
            await each.list_session_summaries("-srv-agent") for each in (ours, theirs)
        ]
        assert one["data"] == two["data"]
        # As the SDK does after a gap in its mirror.
        await import_session_to_store(SESSION, ours)
        assert len(await ours.load(KEY)) == len(TALK) + sum("uuid" not in each for each in TALK)


@async_test
async def test_an_exported_transcript_has_the_same_files(folder, tmp_path):
    run_command("import", str(folder / f"{SESSION}.jsonl"))
    target = tmp_path / "copy" / f"{SESSION}.jsonl"
    target.parent.mkdir()
    run_command("export", SESSION, "--as", "claude-code", "-o", str(target))
    names = sorted(
        each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()
    )
    assert names == sorted(
        each.relative_to(target.parent).as_posix()
        for each in target.parent.rglob("*")
        if each.is_file()
    )
    for name in names:
        lines = [
            [json.loads(line) for line in (place / name).read_text().splitlines()]
            for place in (folder, target.parent)
        ]
        assert lines[0] == lines[1]
    output = run_command("export", SESSION, "--as", "claude-code", "-o", "-")
    assert [json.loads(line) for line in output.splitlines()] == TALK
    run_command("export", SESSION, "--as", "docx", "-o", "-", code=2)
    run_command("export", SESSION, "--as", "claude-code", "--sign", "k", "-o", "x", code=2)
    output = run_command("show", SESSION, "--format", "json")
    assert json.loads(output)["agent_id"] == "-srv-agent"


@async_test
async def test_a_sub_agent_overwrites_no_other_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with HoldfastSessionStore.from_url(URL) as store:
        await store.append(KEY, TALK)
        for subpath in ("subagents/agent-1", "."):
            entries = [TALK[1], {"type": "agent_metadata", "agentType": "x"}]
            await store.append({**KEY, "subpath": subpath}, entries)
            code = 1 if subpath == "." else 0
            run_command("export", SESSION, "--as", "claude-code", "-o", "copy.jsonl", code=code)
            lines = Path("copy.jsonl").read_text().splitlines()
            assert [json.loads(line) for line in lines] == TALK
    for path in Path("copy").rglob("*.*"):
        assert path.stat().st_mode & 0o077 == 0, path
    for subpath in ("a//b", "../a", "/a", "a/.", "a\0", "a:b", "a\\b", ""):
        with pytest.raises(InvalidDocumentError, match="plain path"):
            validate_subpath(subpath)


def test_a_transcript_is_written_to_a_pipe_or_a_file_that_claude_code_finds(folder):
    run_command("import", str(folder / f"{SESSION}.jsonl"))
    for name in ("copy", "copy.jsonl.gz"):
        run_command("export", SESSION, "--as", "claude-code", "-o", name, code=2)
        assert not Path(name).exists()
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    run_command("export", SESSION, "--as", "claude-code", "-o", "pipe")
    lines = os.read(reader, 1 << 16).splitlines()
    os.close(reader)
    assert [json.loads(line) for line in lines] == TALK
    assert Path("pipe").is_fifo()


@async_test
async def test_claude_code_resumes_an_imported_session_and_an_exported_one(tmp_path):
    with ScriptedClaude(script) as api:
        env = api.env(tmp_path / "one")
        session_id, _ = await ask(env, None, tmp_path, "Hello")
        (path,) = (tmp_path / "one/projects").glob(f"*/{session_id}.jsonl")
        async with open_state_store(f"sqlite:///{tmp_path}/agents.db") as state_store:
            manager = SnapshotManager(state_store)
            (document,) = holdfast.importers.read(str(path))
            await manager.import_session(document)
            store = HoldfastSessionStore(state_store)
            _, answer = await ask(
                api.env(tmp_path / "two"), store, tmp_path, "Again", resume=session_id
            )
            assert answer == "Again (2)"
            session = await Session.open(
                state_store, agent_id=document.agent_id, session_id=session_id
            )
            session.append_message({"role": "user", "content": "By another tool"})
            session.append_message({"role": "assistant", "content": "Good"})
            await session.commit()
            document = await session.export()
        target = tmp_path / "three/projects" / path.parent.name / path.name
        target.parent.mkdir(parents=True)
        assert write_transcript(document, target) == len(to_transcript(document))
        _, answer = await ask(
            api.env(tmp_path / "three"), None, tmp_path, "And again", resume=session_id
        )
        assert answer == "And again (4)"
        texts = find_texts(map(json.loads, target.read_text().splitlines()))
        assert texts[:4] == ["Hello", "Hello (1)", "Again", "Again (2)"]
        assert texts[4:] == ["By another tool", "Good", "And again", "And again (4)"]


def test_ids_come_from_the_folder_the_entries_or_the_options(folder, tmp_path):
    elsewhere = tmp_path / "talk.jsonl"
    write_lines(elsewhere, TALK)
    (document,) = holdfast.importers.read(str(elsewhere))
    assert (document.agent_id, document.session_id) == ("-srv-agent", "talk")
    check_imports(document)
    path = str(folder / f"{SESSION}.jsonl")
    one, two = holdfast.importers.read(path, agent_id="app", session_id="ses")
    assert (one.agent_id, one.session_id) == ("app", "ses")
    assert (two.agent_id, two.session_id) == ("app/subagents/workflows/r-1/agent-a1", "ses")
    output = run_command("import", path, "--agent", "app", "--session", "ses")
    assert "app/ses\n" in output
    assert "app/subagents/workflows/r-1/agent-a1/ses\n" in output


def test_a_transcript_that_starts_with_many_summaries_is_recognised(tmp_path):
    path = tmp_path / "s.jsonl"
    summary = {"type": "summary", "summary": "before", "leafUuid": "u0"}
    write_lines(path, [summary] * 50 + [{"type": "user", "uuid": "u1", "sessionId": "s"}])
    (document,) = holdfast.importers.read(str(path))
    assert len(to_transcript(document)) == 51


@pytest.mark.parametrize("name", ["agent_id", "session_id"])
def test_an_empty_id_is_refused(tmp_path, name):
    path = tmp_path / "s.jsonl"
    write_lines(path, [{"type": "user", "uuid": "u1", "sessionId": "s"}])
    with pytest.raises(InvalidDocumentError, match="choose others"):
        holdfast.importers.read(str(path), **{name: ""})


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_metadata_that_is_damaged_is_left_out(text, folder):
    (metadata,) = folder.rglob("*.meta.json")
    metadata.write_text(text)
    _, document = holdfast.importers.read(str(folder / f"{SESSION}.jsonl"))
    assert to_transcript(document) == HELP


def test_damaged_lines_are_named_and_a_cut_one_is_skipped(tmp_path):
    path = tmp_path / "talk.jsonl"
    first = json.dumps(TALK[1])
    odd = '{"type": "x", "text": "\\ud800"}'
    path.write_text(f'{first}\n\n{odd}\n{{"type": "us')
    (document,) = holdfast.importers.read(str(path))
    assert to_transcript(document)[1] == {"type": "x", "text": "\ud800"}
    assert len(to_transcript(document)) == 2
    for line, problem in (("{", "line 2"), ("[1]", "line 2 of .* is not an entry with a type")):
        path.write_text(f"{first}\n{line}\n{first}\n")
        with pytest.raises(InvalidDocumentError, match=problem):
            holdfast.importers.read(str(path), format="claude-code")
    path.write_text('{"type": "x')
    with pytest.raises(InvalidDocumentError, match="has no entries"):
        holdfast.importers.read(str(path), format="claude-code")


@pytest.mark.parametrize(
    "lines",
    [
        [{"role": "user", "content": "hi"}],
        [{"type": "session_meta", "payload": {"id": "s"}, "timestamp": "2026-11-16T12:00:00Z"}],
        [{"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}],
        ["text"],
    ],
)
def test_other_files_are_not_taken_for_transcripts(lines, tmp_path):
    path = tmp_path / "other.jsonl"
    write_lines(path, lines)
    with holdfast.importers.source.open_source(str(path)) as source:
        assert not holdfast.importers.claude_code.recognises(source)


def test_messages_of_other_tools_become_entries(tmp_path):
    path = tmp_path / "chat.json"
    path.write_text('[{"role": "user", "content": "hi"}, {"role": "tool", "content": "x"}]')
    (document,) = holdfast.importers.read(str(path))
    one, two = to_transcript(document)
    assert (one["type"], one["message"]) == ("user", {"role": "user", "content": "hi"})
    assert (one["sessionId"], one["parentUuid"]) == (document.session_id, None)
    assert two == {"role": "tool", "content": "x"}
    assert to_transcript(document) == [one, two]
