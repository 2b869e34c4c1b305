"""Threads of LangGraph's PostgresSaver, written by itself, on a real server."""

from __future__ import annotations

import sys

import pytest
from langgraph.checkpoint.postgres import PostgresSaver

import holdfast.importers
from holdfast.errors import InvalidDocumentError, NotFoundError, StateStoreError
from importers.graphs import check_history, check_imports, interrupted, talk

ORIGINAL = "foreign_threads"


@pytest.fixture(scope="module")
def original(postgres):
    postgres.execute(f"CREATE DATABASE {ORIGINAL}")
    with PostgresSaver.from_conn_string(postgres.url(ORIGINAL)) as saver:
        saver.setup()
        talk(saver)
        interrupted(saver)
    return ORIGINAL


@pytest.fixture
def copy(postgres, original):
    """A database to damage."""
    postgres.execute(f"CREATE DATABASE foreign_copy TEMPLATE {original}")
    yield "foreign_copy"
    postgres.execute("DROP DATABASE foreign_copy")


def test_every_checkpoint_of_a_thread_is_an_event_with_its_state(postgres, original):
    url = postgres.url(original)
    (document,) = holdfast.importers.read(url, thread="t1")
    with PostgresSaver.from_conn_string(url) as saver:
        check_history(saver, document)
    check_imports(document)


def test_without_a_thread_all_of_them_are_read(postgres, original):
    documents = holdfast.importers.read(postgres.url(original))
    assert [each.session_id for each in documents] == ["t1", "waiting"]
    assert [each.state.status for each in documents] == ["completed", "waiting"]
    assert documents[0].tags == {"format": "langgraph-postgres"}


def test_a_thread_that_is_not_there_is_an_error_without_the_password(postgres, original):
    with pytest.raises(NotFoundError, match="no thread 'nobody'") as caught:
        holdfast.importers.read(postgres.url(original), thread="nobody")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "UPDATE checkpoint_blobs SET blob = '\\xc1' WHERE channel = 'messages'",
            "the channel messages .* of the checkpoint .* of the thread t1 is damaged",
        ),
        (
            "UPDATE checkpoint_blobs SET type = 'pickle' WHERE channel = 'messages'",
            "channel messages .* is a pickle",
        ),
        (
            "UPDATE checkpoint_writes SET blob = '\\xc1' WHERE channel = '__interrupt__'",
            "write of the task .* is damaged",
        ),
        (
            "UPDATE checkpoints SET checkpoint = '[]'",
            "the checkpoint .* of the thread t1 is damaged: it is no object",
        ),
        (
            "UPDATE checkpoints SET checkpoint = checkpoint - 'channel_versions'",
            "the checkpoint .* has no versions",
        ),
        (
            "UPDATE checkpoints SET checkpoint = checkpoint - 'ts'",
            "the checkpoint .* has no time",
        ),
        ("DROP TABLE checkpoint_blobs", "something else: .*checkpoint_blobs"),
        ("DELETE FROM checkpoints", "has no checkpoints"),
    ],
)
def test_damage_is_one_error_that_names_it(postgres, copy, statement, words):
    postgres.execute(statement, database=copy)
    with pytest.raises(InvalidDocumentError, match=words) as caught:
        holdfast.importers.read(postgres.url(copy))
    assert "s3cret" not in str(caught.value)


def test_a_database_of_another_program_is_refused(postgres):
    with pytest.raises(InvalidDocumentError, match="something else.*checkpoints"):
        holdfast.importers.read(postgres.url())


def test_a_server_that_cannot_be_used_is_an_error_without_the_password(postgres):
    for url in (
        postgres.url("no_such_database"),
        postgres.url().replace("s3cret", "s3cretly"),
        "postgresql://ada:s3cret@127.0.0.1:1/x",
    ):
        with pytest.raises(StateStoreError, match="cannot be read") as caught:
            holdfast.importers.read(url)
        assert "s3cret" not in str(caught.value)


def test_it_is_read_by_a_role_that_may_only_read(postgres, original):
    postgres.execute(
        "CREATE ROLE looker LOGIN PASSWORD 'looks'",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker",
        database=original,
    )
    url = f"postgresql://looker:looks@127.0.0.1:{postgres.port}/{original}"
    assert len(holdfast.importers.read(url)) == 2


def test_without_the_driver_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StateStoreError, match=r"needs psycopg.*holdfast\[postgresql\]") as caught:
        holdfast.importers.read("postgresql://ada:s3cret@host/db")
    assert "s3cret" not in str(caught.value)
