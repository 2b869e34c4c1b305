"""``holdfast state import`` of files and databases that other tools wrote."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from holdfast.importers.registry import BUILT_IN

NEW = ["--store", "sqlite:///new.db"]
CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
STRANDS = Path(__file__).parents[1] / "importers/samples/strands/session/trip-1"


@pytest.fixture
def chat(tmp_path):
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(CHAT))
    return path


@pytest.fixture(scope="module")
def checkpoint_database(tmp_path_factory):
    from langgraph.checkpoint.sqlite import SqliteSaver

    from importers.graphs import run_conversation, wait

    path = tmp_path_factory.mktemp("threads") / "checkpoints.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        run_conversation(saver)
        wait(saver)
    return path


@pytest.fixture
def database(checkpoint_database, tmp_path):
    shutil.copy(checkpoint_database, tmp_path)
    return tmp_path / checkpoint_database.name


def show(run, session):
    return json.loads(run("state", "show", session, "--format", "json", *NEW).out)


def test_import_a_list_of_messages(run, chat):
    ran = run("state", "import", "chat.json", *NEW)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "imported 2 messages and 3 events into new session imported/chat",
        "entries: 3 added, 0 removed, 0 changed",
    ]
    assert show(run, "chat")["state"]["messages"] == CHAT
    assert run("state", "verify", "chat", *NEW).code == 0
    assert run("replay", "chat", *NEW).code == 0


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("zst", zstandard.compress)])
def test_a_compressed_list_of_messages_becomes_a_session(run, chat, tmp_path, suffix, pack):
    (tmp_path / f"chat.json.{suffix}").write_bytes(pack(chat.read_bytes()))
    ran = run("state", "import", f"chat.json.{suffix}", *NEW)
    assert (ran.code, ran.err) == (0, "")
    assert "imported 2 messages and 3 events into new session imported/chat" in ran.out


def test_dry_run_writes_nothing(run, chat, tmp_path):
    ran = run("state", "import", "chat.json", "--dry-run", *NEW)
    assert "would import 2 messages and 3 events into new session imported/chat" in ran.out
    assert [path.name for path in tmp_path.iterdir()] == ["chat.json"]


def test_import_into_an_existing_session_can_be_undone(run, chat):
    names = ["--agent", "bot", "--session", "ses_1"]
    assert run("state", "import", "chat.json", *names, *NEW).code == 0
    chat.write_text(json.dumps(CHAT[:1]))
    ran = run("state", "import", "chat.json", *names, "--format", "json", *NEW)
    result = json.loads(ran.out)
    assert (result["created"], result["messages_restored"]) == (False, 1)
    assert result["diff"]["removed"] == [["messages", "000000000001"]]
    assert run("state", "restore", "ses_1", result["undo_id"], "-y", *NEW).code == 0
    assert show(run, "ses_1")["state"]["messages"] == CHAT


def test_a_strands_snapshot_becomes_a_session_with_its_history(run):
    file = STRANDS / "scopes/agent/planner/snapshots/snapshot_latest.json"
    ran = run("state", "import", str(file), *NEW)
    assert "imported 8 messages and 4 events into new session planner/trip-1" in ran.out


def test_import_all_threads_of_a_database(run, database, tmp_path):
    ran = run("state", "import", "checkpoints.sqlite", *NEW)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split(" session ")[1] for line in ran.out.splitlines()[::3]] == [
        "langgraph/t1",
        "langgraph/waiting",
    ]
    assert show(run, "waiting")["state"]["status"] == "waiting"
    assert run("state", "verify", *NEW).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints.sqlite", "new.db"]


def test_import_one_thread_of_a_database(run, database):
    ran = run("state", "import", "checkpoints.sqlite", "--thread", "t1", "--session", "x", *NEW)
    assert ran.out.splitlines()[0].endswith("into new session langgraph/x")
    assert json.loads(run("state", "list", "--format", "json", *NEW).out)["items"] != []
    run("state", "show", "waiting", *NEW).assert_failed("no session 'waiting'")


def test_every_checkpoint_of_a_thread_becomes_a_snapshot(run, database):
    ran = run("state", "import", "checkpoints.sqlite", "--thread", "t1", *NEW)
    listed = run("state", "list", "--session", "t1", "--format", "json", *NEW)
    snapshots = json.loads(listed.out)["items"]
    assert ran.out.splitlines()[2] == f"snapshots: {len(snapshots)} saved"
    assert {each["status"] for each in snapshots} == {"running", "completed"}
    third = snapshots[2]
    assert third["tags"]["step"] == "1"
    assert run("state", "fork", "t1", "what-if", "--at", third["snapshot_id"], *NEW).code == 0
    assert len(show(run, "what-if")["state"]["messages"]) == 2
    assert run("state", "verify", *NEW).code == 0


def test_a_graph_resumes_an_imported_thread(run, database):
    from langgraph.types import Command

    from holdfast.adapters.langgraph import HoldfastSaver
    from importers.graphs import build, make_config

    names = ["--thread", "waiting", "--session", "here"]
    assert run("state", "import", "checkpoints.sqlite", *names, *NEW).code == 0
    with HoldfastSaver.from_url("sqlite:///new.db") as saver:
        graph = build(saver)
        assert graph.get_state(make_config("here")).interrupts[0].value == {
            "question": "may I look?"
        }
        result = graph.invoke(Command(resume="yes"), make_config("here"))
    assert "sun (yes)" in str(result["messages"])
    assert show(run, "here")["state"]["status"] == "completed"


def test_an_import_over_a_session_saves_only_the_snapshot_of_the_undo(run, database):
    for _ in range(2):
        ran = run("state", "import", "checkpoints.sqlite", "--thread", "waiting", *NEW)
    assert "snapshots:" not in ran.out
    assert "undo with:" in ran.out


def test_the_json_output_is_a_list_for_several_threads_and_an_object_for_one(run, database):
    many = json.loads(run("state", "import", "checkpoints.sqlite", "--format", "json", *NEW).out)
    assert [each["session_id"] for each in many] == ["t1", "waiting"]
    one = run("state", "import", "checkpoints.sqlite", "--thread", "t1", "--format", "json", *NEW)
    assert json.loads(one.out)["session_id"] == "t1"


def test_import_from_postgresql(run, postgres):
    from langgraph.checkpoint.postgres import PostgresSaver

    from importers.graphs import wait

    postgres.execute("CREATE DATABASE imported_cli")
    url = postgres.url("imported_cli")
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        wait(saver, "p1")
    ran = run("state", "import", url, "--thread", "p1", *NEW)
    assert "new session langgraph/p1" in ran.out
    ran = run("state", "import", url, "--thread", "p2", *NEW)
    ran.assert_failed("no thread 'p2'", "p1")
    assert "s3cret" not in ran.err
    ran = run("state", "import", url.replace("imported_cli", "none_such"), *NEW)
    ran.assert_failed("none_such", "does not exist")
    assert "s3cret" not in ran.err


def test_the_format_can_be_given(run, chat):
    assert run("state", "import", "chat.json", "--as", "chat", *NEW).code == 0
    run("state", "import", "chat.json", "--as", "strands", *NEW).assert_failed("Strands")
    run("state", "import", "chat.json", "--as", "poem", *NEW).assert_failed(
        "unknown format 'poem'", "chat"
    )


def test_the_error_for_an_unknown_format_lists_the_known_ones(run, tmp_path):
    (tmp_path / "x.json").write_text('{"songs": []}')
    run("state", "import", "x.json", *NEW).assert_failed(*BUILT_IN, "--as")


def test_several_threads_cannot_become_one_session(run, database):
    ran = run("state", "import", "checkpoints.sqlite", "--session", "one", *NEW)
    ran.assert_failed("2 threads", "--thread", "t1, waiting")


SAMPLES = Path(__file__).parents[1] / "importers/samples"


def test_import_a_codex_rollout(run):
    (path,) = (SAMPLES / "codex").glob("rollout-2026*")
    ran = run("state", "import", str(path), *NEW)
    session = "0197a1b2-0000-7000-8000-000000000001"
    assert f"imported 4 messages and 30 events into new session codex/{session}" in ran.out
    assert show(run, session)["state"]["values"]["model"] == "gpt-5.3-codex-mini"
    assert run("state", "verify", session, *NEW).code == 0


def test_a_file_without_sessions_is_told(run, tmp_path):
    (tmp_path / "none.af").write_text('{"agents": [], "blocks": [], "tools": []}')
    ran = run("state", "import", "none.af", *NEW)
    assert (ran.code, ran.out) == (0, "none.af has no sessions; nothing was imported\n")
    assert run("state", "import", "none.af", "--format", "json", *NEW).out == "[]\n"


def test_import_the_agents_of_a_letta_file(run):
    ran = run("state", "import", str(SAMPLES / "letta/team.af"), *NEW)
    assert "new session planner/team" in ran.out
    assert "new session booker/team" in ran.out
    assert ran.out.count("snapshots: 1 saved") == 2
    again = run("state", "import", str(SAMPLES / "letta/team.af"), "--agent", "one", *NEW)
    again.assert_failed("2 agents", "omit --agent")


def test_import_a_grampus_snapshot(run):
    ran = run("state", "import", str(SAMPLES / "grampus/snapshot.json"), *NEW)
    assert "imported 4 messages and 6 events into new session research-bot/ses_abc123" in ran.out
    assert "snapshots: 1 saved" in ran.out


def test_a_thread_of_a_file_is_refused(run, chat):
    run("state", "import", "chat.json", "--thread", "t1", *NEW).assert_failed("no threads")


def create_other_table(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")


def corrupt_one_row(path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE checkpoints SET type = 'pickle' WHERE thread_id = 'waiting'")


BAD = {
    "truncated.json": (b'[{"role": "user", "content": "h', "truncated"),
    "shape.json": (b'[{"role": "user"}, 5]', "message 1"),
    "nested.json": (b"[" * 10_000 + b"]" * 10_000, "nested"),
    "surrogate.json": (b'[{"role": "user", "content": "\\ud800"}]', "surrogate"),
    "lines.jsonl": (b'{"role": "user"}\n{"role', "line 2"),
    "songs.sqlite": (create_other_table, "without the tables"),
    "noise.sqlite": (b"SQLite format 3\x00" + b"\xa5" * 5000, "cannot be read as a SQLite"),
    "checkpoints.sqlite": (corrupt_one_row, "pickle"),
    "newer.json": (b'{"schema_version": "9", "created_at": "", "data": {}}', "upgrade"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_and_nothing_is_written(run, database, tmp_path, name):
    made, word = BAD[name]
    path = tmp_path / name
    made(path) if callable(made) else path.write_bytes(made)
    before = sorted(tmp_path.iterdir())
    ran = run("state", "import", name, *NEW)
    ran.assert_failed(word)
    assert ran.out == ""
    assert len(ran.err) < 800
    assert sorted(tmp_path.iterdir()) == before


def test_the_error_for_an_unsupported_url_hides_the_password(run):
    ran = run("state", "import", "mysql://ada:s3cret@host/db", *NEW)
    ran.assert_failed("not a file or a supported database URL")
    assert "s3cret" not in ran.err
