"""Values at paths are removed from a document."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from holdfast.redaction.redactor import Redactor
from support.redaction_samples import (
    ADA,
    AWS,
    check,
    export_work,
    list_removed,
    read_all_text,
    redact_work,
)


def record_conversation(session):
    session.add_message("user", "My name is Ada Lovelace", id=1)
    session.add_message("assistant", [{"type": "text", "text": "Hello, Ada Lovelace!"}], id=2)
    session.add_message("user", "thanks")
    session.set("customer", {"name": "Ada", "age": 36})
    session.set("customer", {"name": "Ada Lovelace", "age": 36, "photo": b"\xff", "n": 4711})
    session.record("llm.called", {"prompt": "about Ada Lovelace", "model": "m"})
    session.record("crm", changes={"set": [("crm", "ada", {"id": uuid.UUID(int=5)})], "delete": []})


def redact_paths(*paths, patterns=False):
    return redact_work(record_conversation, Redactor(patterns=patterns, paths=paths))


@pytest.mark.parametrize("path", ["values.customer.name", "/values/customer/name"])
def test_a_value_at_a_path_is_removed_from_state_events_and_messages(path):
    document = redact_paths(path)
    gone = "[redacted: path]"
    assert document.state.values["customer"] == {
        "name": gone,
        "age": 36,
        "photo": b"\xff",
        "n": 4711,
    }
    sets = [each[2] for event in document.events[4:6] for each in event.changes["set"]]
    assert [each["name"] for each in sets] == [gone, gone]
    assert document.state.messages[0]["content"] == f"My name is {gone}"
    assert document.events[6].data["prompt"] == f"about {gone}"
    assert "Ada Lovelace" not in read_all_text(document)
    assert list_removed(document)["path", path] == 3


@pytest.mark.parametrize("path", ["messages[*].content", "/messages/*/content"])
def test_the_content_of_all_messages_can_be_removed(path):
    document = redact_paths(path)
    assert [message["content"] for message in document.state.messages] == ["[redacted: path]"] * 3
    assert [message.get("id") for message in document.state.messages] == [1, 2, None]


def test_a_redacted_message_keeps_its_role():
    document = redact_paths("messages[1]", "messages[-1].content")
    assert document.state.messages[1] == {"role": "assistant", "content": "[redacted: path]"}
    assert document.state.messages[2] == {"role": "user", "content": "[redacted: path]"}
    assert document.state.messages[0]["role"] == "user"
    (entry,) = document.events[2].changes["set"]
    assert entry[2] == document.state.messages[1]


def test_list_items_namespaces_bytes_and_numbers_can_be_removed():
    document = redact_paths(
        "messages[1].content[0].text", "namespaces.crm", "values.customer.photo"
    )
    assert document.state.messages[1]["content"] == [{"type": "text", "text": "[redacted: path]"}]
    assert document.state.namespaces == {"crm": {"ada": "[redacted: path]"}}
    assert document.state.values["customer"]["photo"] == b"[redacted: path]"
    assert redact_paths("values.customer.n").state.values["customer"]["n"] == "[redacted: path]"
    assert redact_paths("values.customer").state.values == {"customer": "[redacted: path]"}


def test_data_of_events_and_tags_can_be_removed():
    redactor = Redactor(
        patterns=False, paths=["events[*].data.prompt", "tags.who", "events[-1].data"]
    )
    document = export_work(record_conversation)
    tagged = replace(document, tags={"who": "Ada L.", "x": "y"})
    new = redactor.redact(tagged)
    check(new, document)
    assert new.tags == {"who": "[redacted: path]", "x": "y"}
    assert new.events[6].data == {"prompt": "[redacted: path]", "model": "m"}
    assert new.events[0].data == {"agent_id": "bot", "session_id": "ses"}


def test_a_path_without_a_match_removes_nothing():
    document = redact_paths("values.nobody.name", "messages[99]", "namespaces.none")
    assert document.extra["redactions"] == []
    assert document.digest == export_work(record_conversation).digest


def test_common_words_at_a_path_are_kept_elsewhere():
    document = redact_paths("messages[2].content", "messages[*].role")
    assert document.state.messages[0].keys() == {"role", "content", "id"}
    assert document.state.messages[2] == {"role": "[redacted: path]", "content": "[redacted: path]"}
    assert "thanks" not in read_all_text(document)


def test_paths_and_patterns_work_together():
    def work(session):
        session.set("customer", {"name": "Ada Lovelace", "mail": ADA})
        session.add_message("user", f"Ada Lovelace <{ADA}>")

    document = redact_work(work, Redactor(paths=["values.customer.name"]))
    assert document.state.messages[0]["content"] == "[redacted: path] <[redacted: email]>"
    document = redact_work(work, Redactor(paths=["values.customer"]))
    assert document.state.messages[0]["content"] == "[redacted: path] <[redacted: email]>"


def test_secrets_in_paths_are_not_listed():
    def work(session):
        session.set("contacts", {ADA: {"name": "Ada Lovelace"}})

    document = redact_work(work, Redactor(paths=[f'values.contacts["{ADA}"].name']))
    assert ADA not in read_all_text(document)
    assert document.state.values == {
        "contacts": {"[redacted: email]": {"name": "[redacted: path]"}}
    }


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("customer.name", "did you mean values.customer.name"),
        ("status", "the status cannot be redacted"),
        ("session.status", "the status cannot be redacted"),
        ("events", "only the data of events"),
        ("events[3].type", "only the data of events"),
        ("tags", "must name one tag, such as tags.customer"),
        ("messages[", "unexpected"),
    ],
)
def test_an_invalid_path_is_rejected(path, says):
    with pytest.raises(ValueError, match=f"invalid path .*{says}"):
        Redactor(paths=[path])


def test_text_in_bytes_at_a_path_is_removed_everywhere():
    def work(session):
        session.set("a", {"b": b"Ada Lovelace", "c": b"\xff"})
        session.add_message("user", "I am Ada Lovelace")

    document = redact_work(work, Redactor(patterns=False, paths=["values.a"]))
    assert "Ada Lovelace" not in read_all_text(document)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a [redacted: email] b", "a [redacted: email] b"),
        ('password = "x [redacted: email]"', 'password = "[redacted: secret][redacted: email]"'),
        ("email] or not", "[redacted: path]"),
        ("[redacted: email] or not", "[redacted: email][redacted: path]"),
    ],
)
def test_marks_are_not_redacted(text, left):
    def work(session):
        session.set("x", ["email] or not"])
        session.add_message("user", text)

    document = redact_work(work, Redactor(paths=["values.x"]))
    assert document.state.messages[0]["content"] == left


def test_a_value_that_equals_the_name_of_a_kind_is_removed():
    def work(session):
        session.set("x", "AWS key")
        session.add_message("user", f"an AWS key: {AWS}")

    document = redact_work(work, Redactor(paths=["values.x"]))
    assert document.state.messages[0]["content"] == "an [redacted: path]: [redacted: AWS key]"
