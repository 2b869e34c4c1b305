"""Databases of LangGraph's SqliteSaver: which are read, and which are refused."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

import holdfast.importers
from holdfast.errors import InvalidDocumentError, NotFoundError
from importers.graphs import check_imports, run_conversation, wait

DATABASE = "checkpoints.sqlite"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("langgraph") / DATABASE
    with SqliteSaver.from_conn_string(str(path)) as saver:
        run_conversation(saver)
        wait(saver)
    return path


@pytest.fixture
def database(original, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(original, DATABASE)
    return tmp_path / DATABASE


@pytest.fixture
def sql(database):
    """Runs a statement on the database."""

    def run(statement, *values):
        with closing(sqlite3.connect(database)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    return run


def test_all_threads_are_read_by_default(database):
    documents = holdfast.importers.read(DATABASE)
    assert [each.session_id for each in documents] == ["t1", "waiting"]
    check_imports(*documents)


def test_several_threads_cannot_become_one_session(database):
    with pytest.raises(InvalidDocumentError, match="2 threads.*--thread: t1, waiting"):
        holdfast.importers.read(DATABASE, session_id="one")


def test_a_missing_thread_is_reported_with_similar_names(database):
    with pytest.raises(NotFoundError, match="no thread 't2'.*t1"):
        holdfast.importers.read(DATABASE, thread="t2")


@pytest.mark.parametrize("thread", ["../../etc", "ü 'quoted' \"; drop table", "%s"])
def test_a_thread_id_may_have_any_characters(database, sql, thread):
    for table in ("checkpoints", "writes"):
        sql(f"UPDATE {table} SET thread_id = ? WHERE thread_id = 't1'", thread)
    (document,) = holdfast.importers.read(DATABASE, thread=thread)
    assert document.session_id == thread
    check_imports(document)


def test_a_thread_with_an_invalid_session_id_is_imported_under_another(database, sql):
    long = "x" * 300
    for table in ("checkpoints", "writes"):
        sql(f"UPDATE {table} SET thread_id = ? WHERE thread_id = 't1'", long)
    with pytest.raises(InvalidDocumentError, match="1 to 256 characters.*--session"):
        holdfast.importers.read(DATABASE, thread=long)
    (document,) = holdfast.importers.read(DATABASE, thread=long, session_id="short")
    assert document.session_id == "short"


def test_reading_changes_nothing_and_leaves_no_files(database, tmp_path):
    before = database.read_bytes()
    holdfast.importers.read(DATABASE)
    assert [path.name for path in tmp_path.iterdir()] == [DATABASE]
    assert database.read_bytes() == before


def test_a_database_that_is_open_for_writing_is_read_up_to_its_last_commit(database):
    with SqliteSaver.from_conn_string(DATABASE) as saver:
        wait(saver, "third")
        documents = holdfast.importers.read(DATABASE)
        assert [each.session_id for each in documents] == ["t1", "third", "waiting"]


# ------------------------------------------------------------------------------------ bad input


def select_first(sql, column="checkpoint_id"):
    return sql(f"SELECT {column} FROM checkpoints WHERE thread_id = 't1' ORDER BY checkpoint_id")[
        0
    ][0]


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("checkpoint = substr(checkpoint, 1, 20)", "damaged"),
        ("checkpoint = x'c1'", "damaged"),
        ("checkpoint = NULL", "expected bytes, got None"),
        ("checkpoint = 'text'", "expected bytes"),
        ("checkpoint = 7", "expected bytes"),
        ("checkpoint = x'93010203'", "checkpoint must be an object"),
        ("checkpoint = x'80'", "channel_values must be an object"),
        ("type = 'null'", "checkpoint must be an object"),
        ("type = 'pickle'", "is a pickle"),
        ("type = 'msgpack+aes'", "is encrypted"),
        ("type = NULL", "unknown encoding"),
        ("metadata = x'7b'", "not JSON"),
        ("metadata = x'5b5d31'", "not JSON"),
        ("metadata = '[1]'", "metadata must be an object"),
        ("parent_checkpoint_id = x'00'", "parent id must be text"),
        ("checkpoint_ns = x'ff'", "namespace must be text"),
        ("metadata = '{\"counters_since_delta_snapshot\": 5}'", "cannot be imported"),
    ],
)
def test_a_damaged_row_is_named_in_the_error(database, sql, assignment, words):
    name = select_first(sql)
    sql(f"UPDATE checkpoints SET {assignment} WHERE checkpoint_id = ?", name)
    with pytest.raises(InvalidDocumentError, match=f"checkpoint {name} of thread t1.*{words}"):
        holdfast.importers.read(DATABASE)


def test_a_damaged_write_is_named_with_its_task_in_the_error(database, sql):
    sql("UPDATE writes SET value = x'c1' WHERE channel = '__interrupt__'")
    with pytest.raises(InvalidDocumentError, match="write of task .* to __interrupt__ after"):
        holdfast.importers.read(DATABASE)


def test_a_write_with_a_channel_that_is_not_text_is_refused(database, sql):
    sql("UPDATE writes SET channel = CAST(x'ff' AS TEXT)")
    with pytest.raises(InvalidDocumentError, match="a write after checkpoint .* must be text"):
        holdfast.importers.read(DATABASE)


def test_thread_ids_that_are_not_text_are_refused(database, sql):
    sql("UPDATE checkpoints SET thread_id = x'ff00' WHERE thread_id = 't1'")
    with pytest.raises(InvalidDocumentError, match="thread ids must be text"):
        holdfast.importers.read(DATABASE)


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE songs (title TEXT)",
        "CREATE TABLE checkpoints (thread_id TEXT); CREATE TABLE writes (thread_id TEXT)",
        "CREATE VIEW checkpoints AS SELECT 1 AS thread_id; CREATE VIEW writes AS SELECT 1",
    ],
)
def test_a_database_of_another_program_is_refused(tmp_path, monkeypatch, script):
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect(DATABASE)) as connection:
        connection.executescript(script)
    with pytest.raises(InvalidDocumentError, match="without the tables of LangGraph's SqliteSaver"):
        holdfast.importers.read(DATABASE)


def test_a_database_without_checkpoints_is_refused(database, sql):
    sql("DELETE FROM checkpoints")
    with pytest.raises(InvalidDocumentError, match="has no checkpoints"):
        holdfast.importers.read(DATABASE)


@pytest.mark.parametrize("keep", [100, 5000, 20000])
def test_a_truncated_database_is_refused(database, keep):
    database.write_bytes(database.read_bytes()[:keep])
    with pytest.raises(InvalidDocumentError):
        holdfast.importers.read(DATABASE)


def test_a_database_with_random_content_is_refused(database):
    data = bytearray(database.read_bytes())
    data[200:] = b"\xa5" * (len(data) - 200)
    database.write_bytes(data)
    with pytest.raises(InvalidDocumentError):
        holdfast.importers.read(DATABASE)
