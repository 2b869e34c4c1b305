"""Databases of LangGraph's PostgresSaver on a real server: imported, and refused if damaged."""

from __future__ import annotations

import sys

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.types import Command

import holdfast.importers
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import InvalidDocumentError, NotFoundError, StateStoreError
from holdfast.extras import MissingExtraError
from importers.graphs import (
    THREADS,
    build,
    build_nested,
    check_thread,
    import_documents,
    make_config,
    write_threads,
)

ORIGINAL = "imported_threads"


@pytest.fixture(scope="module")
def original(postgres):
    postgres.execute(f"CREATE DATABASE {ORIGINAL}")
    with PostgresSaver.from_conn_string(postgres.url(ORIGINAL)) as saver:
        saver.setup()
        write_threads(saver)
    return ORIGINAL


@pytest.fixture
def copy(postgres, original):
    """A database to damage."""
    postgres.execute(f"CREATE DATABASE imported_copy TEMPLATE {original}")
    yield "imported_copy"
    postgres.execute("DROP DATABASE imported_copy")


@pytest.mark.parametrize("thread", THREADS)
def test_checkpoints_and_states_are_those_of_the_original_saver(postgres, original, thread):
    url = postgres.url(original)
    (document,) = holdfast.importers.read(url, thread=thread)
    with PostgresSaver.from_conn_string(url) as saver:
        check_thread(saver, document, thread)


@pytest.mark.parametrize(("thread", "graph"), [("waiting", build), ("nested", build_nested)])
def test_a_graph_resumes_an_imported_interrupt(postgres, original, thread, graph):
    (document,) = holdfast.importers.read(postgres.url(original), thread=thread)
    with HoldfastSaver.from_url("memory:") as saver:
        import_documents(saver.state_store, document)
        result = graph(saver).invoke(Command(resume="yes"), make_config(thread))
    assert "yes" in str(result["messages"])


def test_all_threads_are_read_by_default(postgres, original):
    documents = holdfast.importers.read(postgres.url(original))
    assert [each.session_id for each in documents] == sorted(THREADS)
    assert documents[0].tags == {"format": "langgraph-postgres"}


def test_the_error_for_a_missing_thread_hides_the_password(postgres, original):
    with pytest.raises(NotFoundError, match="no thread 'missing'") as caught:
        holdfast.importers.read(postgres.url(original), thread="missing")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "UPDATE checkpoint_blobs SET blob = '\\xc1' WHERE channel = 'messages'",
            "channel messages .* of checkpoint .* of thread .* is damaged",
        ),
        (
            "UPDATE checkpoint_blobs SET type = 'pickle' WHERE channel = 'messages'",
            "channel messages .* is a pickle",
        ),
        (
            "UPDATE checkpoint_writes SET blob = '\\xc1' WHERE channel = '__interrupt__'",
            "write of task .* is damaged",
        ),
        (
            "UPDATE checkpoints SET checkpoint = '[]'",
            "checkpoint .* of thread .* is damaged: checkpoint must be an object",
        ),
        (
            "UPDATE checkpoints SET checkpoint = checkpoint - 'channel_versions'",
            "checkpoint .* is damaged: channel_versions must be an object",
        ),
        (
            "UPDATE checkpoints SET checkpoint = checkpoint - 'ts'",
            "checkpoint .* has an invalid time",
        ),
        ("DROP TABLE checkpoint_blobs", "without the tables of .*checkpoint_blobs"),
        ("DELETE FROM checkpoints", "has no checkpoints"),
    ],
)
def test_damage_is_named_in_the_error(postgres, copy, statement, words):
    postgres.execute(statement, database=copy)
    with pytest.raises(InvalidDocumentError, match=words) as caught:
        holdfast.importers.read(postgres.url(copy))
    assert "s3cret" not in str(caught.value)


def test_a_database_of_another_program_is_refused(postgres):
    with pytest.raises(InvalidDocumentError, match="without the tables of .*checkpoints"):
        holdfast.importers.read(postgres.url())


def test_the_error_for_an_unreachable_server_hides_the_password(postgres):
    for url in (
        postgres.url("no_such_database"),
        postgres.url().replace("s3cret", "s3cretly"),
        "postgresql://ada:s3cret@127.0.0.1:1/x",
    ):
        with pytest.raises(StateStoreError, match="cannot read") as caught:
            holdfast.importers.read(url)
        assert "s3cret" not in str(caught.value)


def test_a_role_with_read_permission_can_import(postgres, original):
    postgres.execute(
        "CREATE ROLE looker LOGIN PASSWORD 'looks'",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker",
        database=original,
    )
    url = f"postgresql://looker:looks@127.0.0.1:{postgres.port}/{original}"
    assert len(holdfast.importers.read(url)) == len(THREADS)


def test_a_missing_driver_is_reported_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"psycopg.*holdfast\[postgresql\]") as caught:
        holdfast.importers.read("postgresql://ada:s3cret@host/db")
    assert "s3cret" not in str(caught.value)
