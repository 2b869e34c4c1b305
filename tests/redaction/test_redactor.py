"""Redacted documents have no secrets and are valid documents."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Document, RetentionPolicy, Store, register_type
from holdfast.redaction.redactor import Redactor
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer.manager import SnapshotManager
from support.async_tests import async_test
from support.conversations import open_session
from support.redaction_samples import (
    ADA,
    AWS,
    BOB,
    GITHUB,
    PHONE,
    REDACTOR,
    check,
    export_work,
    list_removed,
    read_all_text,
    redact_work,
)
from support.sample_documents import update_digest
from support.sample_values import SAMPLES, is_identical, keys, values
from support.subprocesses import read_python

# -------------------------------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("secret", "kind"),
    [(AWS, "AWS key"), (GITHUB, "GitHub token"), (ADA, "email"), (PHONE, "phone")],
)
def test_a_secret_is_removed_from_state_and_events(secret, kind):
    def work(session):
        session.add_message("user", f"it is {secret}, yes")
        session.set("a", {"b": [{"c": (secret, f"<{secret}>")}]})
        session.set("bytes", f"x {secret}".encode())
        session.record("tool.called", {"args": {"x": secret}})
        session.set("a", 1)
        session.delete("bytes")
        session.set("bytes", f"y {secret}".encode())

    document = redact_work(work)
    assert secret not in read_all_text(document)
    assert document.state.messages == [
        {"role": "user", "content": f"it is [redacted: {kind}], yes"}
    ]
    assert document.state.values == {"a": 1, "bytes": f"y [redacted: {kind}]".encode()}
    (first,) = document.events[2].changes["set"]
    assert first[2] == {"b": [{"c": (f"[redacted: {kind}]", f"<[redacted: {kind}]>")}]}
    assert document.events[4].data == {"args": {"x": f"[redacted: {kind}]"}}
    assert list_removed(document) == {
        (kind, "messages[0].content"): 2,
        (kind, "values.a.b[0].c[0]"): 1,
        (kind, "values.a.b[0].c[1]"): 1,
        (kind, "values.bytes"): 3,
        (kind, "events[4].data.args.x"): 1,
    }


def test_values_of_any_type_with_secret_names_are_removed():
    def work(session):
        session.set("password", "x")
        session.set("API_KEY", ["k1", "k2"])
        session.set("settings", {"clientSecret": b"abc", "private_key": b"\xff\xfe", "pwd": 4711})
        session.set("secrets", {"openai": "k3", "list": ["k4"]})
        session.set("env", [{"name": "DB_PASSWORD", "value": "k5"}, {"name": "x", "value": "k6"}])

    document = redact_work(work)
    gone = "[redacted: secret]"
    assert document.state.values == {
        "password": gone,
        "API_KEY": [gone, gone],
        "settings": {"clientSecret": gone.encode(), "private_key": gone.encode(), "pwd": gone},
        "secrets": {"openai": gone, "list": [gone]},
        "env": [{"name": "DB_PASSWORD", "value": gone}, {"name": "x", "value": "k6"}],
    }


def test_harmless_values_with_secret_names_are_kept():
    values = {
        "max_tokens": 512,
        "secrets": 3,
        "password": None,
        "has_password": True,
        "token": "the",
        "tokens": ["the", "cat"],
        "schema": {"password": {"type": "string"}, "secret": "required"},
        "secretary": "Mrs. Lovelace",
        "next_token": "abc123def456",
    }

    def work(session):
        for key, value in values.items():
            session.set(key, value)

    document = redact_work(work)
    assert document.state.values == values
    assert document.extra["redactions"] == []


def test_a_password_is_also_removed_from_messages():
    def work(session):
        session.add_message("user", "I always use swordfish99 there")
        arguments = json.dumps({"user": "ada", "password": "swordfish99"})
        session.add_message("assistant", "", tool_calls=[{"id": "c", "arguments": arguments}])
        session.set("login", {"password": "swordfish99"})
        session.set("swordfish99", {"swordfish99": {"swordfish99"}})

    document = redact_work(work)
    assert "swordfish99" not in read_all_text(document)
    call = document.state.messages[1]["tool_calls"][0]
    assert json.loads(call["arguments"]) == {"user": "ada", "password": "[redacted: secret]"}
    gone = "[redacted: secret]"
    assert document.state.values[gone] == {gone: {gone}}


def test_a_numeric_password_is_removed_everywhere():
    def work(session):
        session.set("login", {"password": 12345678})
        session.add_message("user", "use 12345678, not 123456789")
        session.set("n", [12345678, 12345679])

    document = redact_work(work)
    assert document.state.values["n"] == ["[redacted: secret]", 12345679]
    assert document.state.messages[0]["content"] == "use [redacted: secret], not 123456789"


def test_single_kinds_can_be_disabled():
    def work(session):
        session.add_message("user", f"{AWS} {ADA} {PHONE}")

    def redact_text(**options):
        return redact_work(work, Redactor(**options)).state.messages[0]["content"]

    assert redact_text(secrets=False) == f"{AWS} [redacted: email] [redacted: phone]"
    assert redact_text(emails=False) == f"[redacted: AWS key] {ADA} [redacted: phone]"
    assert redact_text(phones=False) == f"[redacted: AWS key] [redacted: email] {PHONE}"
    assert redact_text(patterns=False) == f"{AWS} {ADA} {PHONE}"


def test_region_and_entropy_find_more():
    def work(session):
        session.add_message("user", "call 030 901820 about Zx8kQ2vN5pL9wR3tY7uJ1mB4")

    more = Redactor(region="DE", entropy=True)
    assert redact_work(work, more).state.messages[0]["content"] == (
        "call [redacted: phone] about [redacted: secret]"
    )
    with pytest.raises(ValueError, match="invalid region"):
        Redactor(region="XX")


# ------------------------------------------------------------------------------------- keys


def test_redacted_keys_stay_different():
    def work(session):
        session.set(
            "contacts", {ADA: 1, BOB: 2, f"{ADA}/{BOB}": 3, b"x@example.net": 4, (ADA, 1): 5}
        )
        session.set(ADA, "a")
        session.set(BOB, "b")
        session.delete(ADA)
        session.set("emails", {ADA, BOB, "x"})

    document = redact_work(work)
    one, two, three = "[redacted: email]", "[redacted: email 2]", "[redacted: email 3]"
    numbered = document.state.values["contacts"]
    assert list(numbered.values()) == [1, 2, 3, 4, 5]
    names = list(numbered)
    assert set(names[:2]) == {one, two}
    assert names[2:] == [f"{names[0]}/{names[1]}", three.encode(), (names[0], 1)]
    assert document.state.values[names[1]] == "b"
    assert document.state.values["emails"] == {one, two, "x"}
    assert document.events[4].changes["delete"] == [("state", names[0])]


def test_a_redacted_key_does_not_clash_with_an_existing_mark():
    def work(session):
        session.set("[redacted: email]", 1)
        session.set(ADA, 2)

    document = redact_work(work)
    assert document.state.values == {"[redacted: email]": 1, "[redacted: email 2]": 2}


def test_namespaces_ids_tags_types_and_unknown_fields_are_redacted():
    document = export_work(
        lambda session: session.record(
            f"mail.sent:{ADA}", changes={"set": [(f"box/{ADA}", "k", 1)], "delete": []}
        ),
        agent_id=ADA,
        session_id=f"ses {BOB}",
    )
    tree = document.to_dict()
    tree |= {"tags": {ADA: BOB, "token": "abc123def456"}, "source_environment": ADA, "x": [ADA]}
    tree["state"]["note"] = BOB
    new = REDACTOR.redact(Document.from_dict(update_digest(tree)))
    check(new, document)
    assert ADA not in read_all_text(new)
    assert BOB not in read_all_text(new)
    assert "abc123def456" not in read_all_text(new)
    assert new.agent_id == "[redacted: email]"
    assert new.session_id == "ses [redacted: email 2]"
    assert new.state.namespaces == {"box/[redacted: email]": {"k": 1}}
    assert new.extra["x"] == ["[redacted: email]"]
    assert new.events[1].type == "mail.sent:[redacted: email]"
    assert ("email", "state.note") in list_removed(new)


def test_agents_of_a_multi_agent_session_stay_separate():
    def work(session):
        for agent in (ADA, BOB):
            session.agent(agent).set("plan", agent)

    document = redact_work(work, scope="multi_agent", agent_id="crew")
    assert sorted(document.state.namespaces) == [
        "state/[redacted: email 2]",
        "state/[redacted: email]",
    ]
    members = [key for _, key, _ in document.snapshot.items("session") if key != "status"]
    assert members == ["agent:[redacted: email 2]", "agent:[redacted: email]"]


def test_messages_with_redacted_keys_keep_their_order():
    def work(session):
        for key in ("zoe@example.com", "000000000000", "x"):
            session.record("m", changes={"set": [("messages", key, {"k": key})], "delete": []})
        session.record("m", changes={"set": [], "delete": [("messages", "x")]})

    document = redact_work(work)
    assert [message["k"] for message in document.state.messages] == [
        "000000000000",
        "[redacted: email]",
    ]


# ------------------------------------------------------------------------------- valid documents


def test_a_document_without_secrets_does_not_change():
    def work(session):
        for key, value in SAMPLES.items():
            session.set(key, value)
            session.record("x", value)
        session.add_message("user", "Good morning. It is 2026-11-15T09:30:00Z; see §5, #17.")

    old = export_work(work)
    new = REDACTOR.redact(old)
    assert new.digest == old.digest
    assert [event.hash for event in new.events] == [event.hash for event in old.events]
    assert new.to_dict() == update_digest({**old.to_dict(), "redactions": []})
    for key, value in SAMPLES.items():
        assert is_identical(new.snapshot.get("state", key), value)


@async_test
async def test_the_base_of_a_pruned_document_is_redacted():
    session = await open_session(MemoryStateStore())
    for number in range(4):
        session.add_message("user", f"{number}: {ADA}")
        session.set("mail", {ADA: number})
        await session.save()
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=1))
    session.add_message("user", ADA)
    await session.commit()
    old = await session.export()
    assert old.base is not None
    new = REDACTOR.redact(old)
    assert new.base.get("state", "mail") == {"[redacted: email]": 3}
    assert new.events[0].prev == old.events[0].prev
    assert new.position.hash == new.events[-1].hash
    assert ADA not in read_all_text(new)


def test_a_document_without_events_is_redacted():
    store = Store()
    store.set("state", "mail", ADA)
    made = Document(snapshot=store.snapshot(), agent_id="a", session_id="s")
    new = REDACTOR.redact(made)
    assert new.state.values == {"mail": "[redacted: email]"}
    assert (new.events, new.position, new.snapshot_id) == ((), None, made.snapshot_id)


def test_a_second_redaction_adds_to_the_list():
    def work(session):
        session.add_message("user", f"{ADA} {PHONE}")

    first = redact_work(work, Redactor(phones=False))
    tree = first.to_dict()
    tree["redactions"].append("a custom note")
    second = REDACTOR.redact(Document.from_dict(update_digest(tree)))
    assert second.extra["redactions"] == [
        "a custom note",
        {"kind": "email", "path": "messages[0].content", "count": 2},
        {"kind": "phone", "path": "messages[0].content", "count": 2},
    ]


@async_test
async def test_the_manager_exports_a_redacted_document():
    session = await open_session(MemoryStateStore())
    session.add_message("user", ADA)
    await session.commit()
    manager = SnapshotManager(session.state_store)
    document = await manager.export_session("bot", "ses", redact=Redactor().redact)
    assert document.state.messages[0]["content"] == "[redacted: email]"


class Contact:
    """A registered type that accepts only email addresses."""

    def __init__(self, name, mail):
        if "@" not in mail:
            raise ValueError(mail)
        self.name, self.mail = name, mail


register_type(
    Contact,
    name="tests.redaction.Contact",
    encode=lambda contact: [contact.name, contact.mail],
    decode=lambda content: Contact(*content),
)


def test_registered_types_are_redacted():
    def work(session):
        session.set("a", Contact(ADA, "@"))
        session.set("b", [Contact("Bob", BOB)])
        session.set("c", Contact("Eve", "@"))

    document = redact_work(work)
    kept = document.state.values["a"]
    assert (type(kept), kept.name, kept.mail) == (Contact, "[redacted: email]", "@")
    assert document.state.values["b"] == [["Bob", "[redacted: email]"]]
    assert document.state.values["c"].name == "Eve"
    content = Redactor(patterns=False, paths=["values.b"])
    assert BOB not in read_all_text(redact_work(work, content))


# ------------------------------------------------------------------------------- properties

SECRETS = [AWS, GITHUB, ADA, BOB, PHONE]
text = st.sampled_from(
    [
        *("{}", " {} ", "<{}>", 'x: "{}"', "{}\n", "see {}, please", "\\{}, é", "{}/{}"),
        *("a\\n{}\\n", "\x1b[1m{}\x1b[0m", "x%3D{}", "\\u00e9{}"),
    ]
)
planted = st.builds(lambda form, secret: form.replace("{}", secret), text, st.sampled_from(SECRETS))
leaves = planted | planted.map(str.encode)
holding = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner | values, max_size=3),
        st.lists(inner | values, max_size=3).map(tuple),
        st.dictionaries(leaves | keys, inner, max_size=3),
        st.sets(leaves, max_size=3),
        st.builds(lambda value: {"password": value}, inner),
    ),
    max_leaves=6,
)
steps = st.lists(
    st.tuples(st.sampled_from(["set", "message", "record", "delete"]), planted, holding), max_size=8
)


@given(steps)
def test_no_secret_remains_and_the_document_is_valid(work):
    def do(session):
        for kind, name, value in work:
            if kind == "set":
                session.set(name, value)
            elif kind == "message":
                session.add_message("user", value, name=name)
            elif kind == "delete":
                session.delete(name)
            else:
                session.record(name.strip() or "x", value)

    document = redact_work(do)
    whole = read_all_text(document)
    for secret in SECRETS:
        assert secret not in whole
        assert json.dumps(secret)[1:-1] not in whole


@given(st.dictionaries(st.text(max_size=4), values, max_size=4), values)
def test_values_without_secrets_do_not_change(state, data):
    def do(session):
        for key, value in state.items():
            session.set(key, value)
        session.record("x", data)

    old = export_work(do)
    assert REDACTOR.redact(old).to_dict() == update_digest({**old.to_dict(), "redactions": []})


# ------------------------------------------------------------------------- a missing library

MISSING = """
import sys
sys.modules[{module!r}] = None
from holdfast.redaction.redactor import Redactor
Redactor(patterns=False, paths=["values.x"])
Redactor({off}=False)
try:
    Redactor()
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("module", "off"), [("detect_secrets", "secrets"), ("phonenumbers", "phones")]
)
def test_a_missing_library_is_a_missing_extra_error(module, off):
    program = MISSING.format(module=module, off=off)
    output = read_python(program)
    assert output.startswith("MissingExtraError redaction needs the extra 'redaction'")
    assert f"{module} is not installed" in output
    assert "pip install 'holdfast[redaction]'" in output
