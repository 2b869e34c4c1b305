"""Threads of LangGraph's SqliteSaver, written by itself."""

from __future__ import annotations

import operator
import shutil
import sqlite3
from contextlib import closing
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

import holdfast.importers
from holdfast.errors import InvalidDocumentError, NotFoundError
from holdfast.importers.langgraph_serde import Message
from holdfast.importers.langgraph_thread import updated
from holdfast.importers.snapshots import session_status
from holdfast.sessions.replay import replay
from importers.graphs import check_history, check_imports, config, interrupted, talk

DATABASE = "checkpoints.sqlite"


def joined(state, writes):
    return [*state, *(item for write in writes for item in write)]


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


class Items(TypedDict):
    items: Annotated[list, DeltaChannel(joined, snapshot_frequency=3)]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("langgraph") / DATABASE
    with SqliteSaver.from_conn_string(str(path)) as saver:
        talk(saver)
        interrupted(saver)
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


def test_every_checkpoint_of_a_thread_is_an_event_with_its_state(database):
    (document,) = holdfast.importers.read(DATABASE, thread="t1")
    with SqliteSaver.from_conn_string(DATABASE) as saver:
        check_history(saver, document)
    check_imports(document)


def test_the_session_is_what_the_thread_is_now(database):
    (document,) = holdfast.importers.read(DATABASE, thread="t1")
    assert (document.agent_id, document.session_id) == ("imported", "t1")
    assert document.tags == {"format": "langgraph-sqlite"}
    assert document.state.status == "completed"
    roles = [message["role"] for message in document.state.messages]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert document.state.messages[2]["content"].startswith("sun (")
    assert document.state.values == {"notes": ["called", "used"], "step": 2}


def test_a_message_that_was_removed_leaves_the_keys_of_the_others(database):
    (document,) = holdfast.importers.read(DATABASE, thread="t1")
    removed = [
        each for each in document.events if ("messages", "000000000000") in each.changes["delete"]
    ]
    assert [each.data["metadata"]["source"] for each in removed] == ["update"]
    assert not [space for space, _, _ in removed[0].changes["set"] if space == "messages"]


def test_a_thread_that_waits_is_a_session_that_waits_with_its_question(database):
    (document,) = holdfast.importers.read(DATABASE, thread="waiting")
    assert document.state.status == "waiting"
    (write,) = document.state.namespaces["langgraph/writes"].values()
    assert write["channel"] == "__interrupt__"
    assert write["value"][0]["value"] == {"question": "may I look?"}


def test_without_a_thread_all_of_them_are_read(database):
    documents = holdfast.importers.read(DATABASE)
    assert [each.session_id for each in documents] == ["t1", "waiting"]
    check_imports(*documents)


def test_one_session_cannot_be_all_threads(database):
    with pytest.raises(InvalidDocumentError, match="2 threads.*--thread: t1, waiting"):
        holdfast.importers.read(DATABASE, session_id="one")


def test_a_thread_that_is_not_there_is_an_error_that_says_which_are(database):
    with pytest.raises(NotFoundError, match="no thread 't2'.*t1"):
        holdfast.importers.read(DATABASE, thread="t2")


@pytest.mark.parametrize("thread", ["../../etc", "ü 'quoted' \"; drop table", "%s"])
def test_a_thread_may_have_any_name(database, sql, thread):
    for table in ("checkpoints", "writes"):
        sql(f"UPDATE {table} SET thread_id = ? WHERE thread_id = 't1'", thread)
    (document,) = holdfast.importers.read(DATABASE, thread=thread)
    assert document.session_id == thread
    check_imports(document)


def test_a_thread_whose_name_is_no_session_id_gets_another(database, sql):
    long = "x" * 300
    for table in ("checkpoints", "writes"):
        sql(f"UPDATE {table} SET thread_id = ? WHERE thread_id = 't1'", long)
    with pytest.raises(InvalidDocumentError, match="1 to 256 characters.*--session"):
        holdfast.importers.read(DATABASE, thread=long)
    (document,) = holdfast.importers.read(DATABASE, thread=long, session_id="short")
    assert document.session_id == "short"


def test_reading_leaves_nothing_behind_and_changes_nothing(database, tmp_path):
    before = database.read_bytes()
    holdfast.importers.read(DATABASE)
    assert [path.name for path in tmp_path.iterdir()] == [DATABASE]
    assert database.read_bytes() == before


def test_a_database_that_is_written_to_is_read_with_what_was_committed(database):
    with SqliteSaver.from_conn_string(DATABASE) as saver:
        interrupted(saver, "third")
        documents = holdfast.importers.read(DATABASE)
        assert [each.session_id for each in documents] == ["t1", "third", "waiting"]


def test_messages_may_be_in_the_only_channel_that_has_any(tmp_path, monkeypatch):
    class Chat(TypedDict):
        talk: list
        topic: str

    monkeypatch.chdir(tmp_path)
    graph = StateGraph(Chat).add_node(
        "say", lambda state: {"talk": [*state["talk"], AIMessage("b")]}
    )
    with SqliteSaver.from_conn_string(DATABASE) as saver:
        built = graph.add_edge(START, "say").compile(checkpointer=saver)
        built.invoke({"talk": [HumanMessage("a")], "topic": "letters"}, config())
    (document,) = holdfast.importers.read(DATABASE)
    assert [message["content"] for message in document.state.messages] == ["a", "b"]
    assert document.state.values == {"topic": "letters"}


def test_a_channel_that_is_kept_as_its_changes_is_put_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph = StateGraph(Items).add_node("a", lambda state: {"items": ["a"]}).add_edge(START, "a")
    with SqliteSaver.from_conn_string(DATABASE) as saver:
        built = graph.compile(checkpointer=saver)
        for number in range(4):
            built.invoke({"items": [str(number)]}, config())
        history = list(built.get_state_history(config()))
    (document,) = holdfast.importers.read(DATABASE)
    states = [each.after.get("state", "items", []) for each in holdfast.replay(document)]
    assert states[1:] == [each.values["items"] for each in reversed(history)]


def test_what_is_written_to_a_channel_is_taken_as_most_reducers_take_it():
    def said(id_, content="", role="user"):
        return Message(role=role, content=content, id=id_)

    one, two = said("1"), said("2")
    assert updated(None, [one]) == [one]
    assert updated(None, one) == [one]
    assert updated([one, two], [said("1", "new"), said("3")]) == [said("1", "new"), two, said("3")]
    assert updated([one], [two, said("2", "again")]) == [one, said("2", "again")]
    assert updated([one, two], [said("1", role="remove")]) == [two]
    assert updated([one, two], [said("__remove_all__", role="remove"), said("9")]) == [said("9")]
    assert updated(["a"], ["a", "b"]) == ["a", "a", "b"]
    assert updated({"a": 1}, {"b": 2}) == {"a": 1, "b": 2}
    assert updated(1, 2) == 2
    assert updated([1], {"value": [5], "type": "__overwrite__"}) == [5]
    assert updated([1], {"__overwrite__": [6]}) == [6]


def test_a_channel_of_messages_that_are_none_is_a_value(tmp_path, monkeypatch):
    class Odd(TypedDict):
        messages: list

    monkeypatch.chdir(tmp_path)
    graph = StateGraph(Odd).add_node("say", lambda state: {"messages": ["a", ("b", 1)]})
    with SqliteSaver.from_conn_string(DATABASE) as saver:
        built = graph.add_edge(START, "say").compile(checkpointer=saver)
        built.invoke({"messages": []}, config())
    (document,) = holdfast.importers.read(DATABASE)
    assert document.state.messages == []
    assert document.state.values == {"messages": ["a", ["b", 1]]}


# ------------------------------------------------------------------------------------ bad input


def first(sql, column="checkpoint_id"):
    return sql(f"SELECT {column} FROM checkpoints WHERE thread_id = 't1' ORDER BY checkpoint_id")[
        0
    ][0]


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("checkpoint = substr(checkpoint, 1, 20)", "damaged"),
        ("checkpoint = x'c1'", "damaged"),
        ("checkpoint = NULL", "no bytes"),
        ("checkpoint = 'text'", "no bytes"),
        ("checkpoint = 7", "no bytes"),
        ("checkpoint = x'93010203'", "no object"),
        ("checkpoint = x'80'", "no values of channels"),
        ("type = 'null'", "no object"),
        ("type = 'pickle'", "pickle.*never read"),
        ("type = 'msgpack+aes'", "encrypted"),
        ("type = NULL", "not known"),
        ("metadata = x'7b'", "no JSON"),
        ("metadata = x'5b5d31'", "no JSON"),
        ("metadata = '[1]'", "no object"),
        ("parent_checkpoint_id = x'00'", "parent is no text"),
        ("checkpoint_ns = x'ff'", "namespace is no text"),
        ('metadata = \'{"a": "\\ud800"}\'', "cannot be kept: .*surrogate"),
    ],
)
def test_a_damaged_row_is_an_error_that_names_it(database, sql, assignment, words):
    name = first(sql)
    sql(f"UPDATE checkpoints SET {assignment} WHERE checkpoint_id = ?", name)
    with pytest.raises(InvalidDocumentError, match=f"checkpoint {name} of the thread t1.*{words}"):
        holdfast.importers.read(DATABASE)


def test_a_damaged_write_is_an_error_that_names_its_task(database, sql):
    sql("UPDATE writes SET value = x'c1' WHERE channel = '__interrupt__'")
    with pytest.raises(InvalidDocumentError, match="write of the task .* to __interrupt__ after"):
        holdfast.importers.read(DATABASE)


def test_a_write_whose_channel_is_no_text_is_damage(database, sql):
    sql("UPDATE writes SET channel = CAST(x'ff' AS TEXT)")
    with pytest.raises(InvalidDocumentError, match="a write after the checkpoint .* no text"):
        holdfast.importers.read(DATABASE)


def test_ids_that_are_no_text_are_damage(database, sql):
    sql("UPDATE checkpoints SET thread_id = x'ff00' WHERE thread_id = 't1'")
    with pytest.raises(InvalidDocumentError, match="thread id that is no text"):
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
    with pytest.raises(InvalidDocumentError, match="SQLite database of something else"):
        holdfast.importers.read(DATABASE)


def test_a_database_without_checkpoints_is_refused(database, sql):
    sql("DELETE FROM checkpoints")
    with pytest.raises(InvalidDocumentError, match="has no checkpoints"):
        holdfast.importers.read(DATABASE)


@pytest.mark.parametrize("keep", [100, 5000, 20000])
def test_a_database_that_is_cut_short_is_refused(database, keep):
    database.write_bytes(database.read_bytes()[:keep])
    with pytest.raises(InvalidDocumentError):
        holdfast.importers.read(DATABASE)


def test_a_database_that_is_full_of_noise_is_refused(database):
    data = bytearray(database.read_bytes())
    data[200:] = b"\xa5" * (len(data) - 200)
    database.write_bytes(data)
    with pytest.raises(InvalidDocumentError):
        holdfast.importers.read(DATABASE)


@pytest.mark.parametrize("defer", [False, True])
def test_a_thread_is_running_while_a_node_waits_for_others_that_all_ran(tmp_path, defer):
    builder = StateGraph(Log)
    for name in ("a", "b", "end"):
        options = {"defer": defer} if name == "end" else {}
        builder.add_node(name, lambda state: {"log": ["x"]}, **options)
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge(["a", "b"], "end")
    path = str(tmp_path / "joined.sqlite")
    with SqliteSaver.from_conn_string(path) as saver:
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"log": []}, config("t"))
        states = list(graph.get_state_history(config("t")))
    (document,) = holdfast.importers.read(path, thread="t")
    found = [session_status(step.after) for step in replay(document)]
    wanted = ["running" if state.next else "completed" for state in reversed(states)]
    assert found[-len(wanted) :] == wanted
    assert wanted[-2:] == ["running", "completed"]
