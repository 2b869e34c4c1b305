"""Paths into a state are parsed, formatted and matched."""

from __future__ import annotations

import pytest

from holdfast import Store, register_type
from holdfast.documents.json_path import (
    REMOVED,
    WILDCARD,
    EntryPaths,
    format_path,
    parse_path,
    parse_paths,
    remove_paths,
    transform_at,
)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("values.customer.name", ("values", "customer", "name")),
        ("values", ("values",)),
        ("messages[3].content", ("messages", 3, "content")),
        ("messages[*].content", ("messages", WILDCARD, "content")),
        ("messages[-1]", ("messages", -1)),
        ("messages.3.content", ("messages", 3, "content")),
        ("namespaces.x.y", ("namespaces", "x", "y")),
        ("namespaces.state/writer.plan", ("namespaces", "state/writer", "plan")),
        ('values["a.b"][0]', ("values", "a.b", 0)),
        ("values['it\\'s \"so\"']", ("values", 'it\'s "so"')),
        ("values.*.phone", ("values", WILDCARD, "phone")),
        ("status", ("status",)),
        ("session.owner", ("session", "owner")),
        ("state.values.x", ("values", "x")),
        ("$.values.x", ("values", "x")),
        ("/values/customer/name", ("values", "customer", "name")),
        ("/state/values/a~1b/m~0n", ("values", "a/b", "m~n")),
        ("/messages/3/content", ("messages", 3, "content")),
        ("/messages/*/content", ("messages", WILDCARD, "content")),
    ],
)
def test_a_path_is_parsed(text, steps):
    assert parse_path(text).steps == steps
    assert str(parse_path(text)) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        (
            "customer.name",
            r"must start with one of .* \(did you mean values.customer.name\?\)",
        ),
        ("/customer/name", "must start with one of values"),
        ("values..x", r"unexpected '\.\.x'"),
        ("values[", r"unexpected '\['"),
        ("values[x]", "unexpected"),
        ("values.x]", "unexpected"),
        ("values.x.", "unexpected"),
        ('values["\\x"]', "not a valid JSON string"),
        ("messages.content", r"must name a message, such as messages\[\*\].content"),
        ("/messages/content", "must name a message"),
        ("status.x", "the status has no parts"),
        ("/values/a~b", "write ~ as ~0"),
        ("events[*].data", "must start with one of"),
    ],
)
def test_an_invalid_path_is_an_error_with_the_reason(text, says):
    with pytest.raises(ValueError, match=f"invalid path .*{says}.*use a path such as values"):
        parse_path(text)


def test_paths_must_be_a_list_of_strings():
    with pytest.raises(TypeError, match="path must be a str such as values.customer.name, got 3"):
        parse_path(3)
    with pytest.raises(TypeError, match=r"got a str; pass \['values.x'\]"):
        parse_paths("values.x")


@pytest.mark.parametrize(
    "steps",
    [
        ("values", "customer", 0, "name"),
        ("values", "a.b", "", "3", 'say "x"', "ü"),
        ("messages", 3),
        ("namespaces", "state/writer", "a@b"),
    ],
)
def test_a_formatted_path_is_parsed_to_the_same_steps(steps):
    assert parse_path(format_path(steps)).steps == steps


def test_keys_of_other_types_are_formatted():
    assert format_path(("values", (1, 2), b"x", WILDCARD)) == 'values["(1, 2)"]["b\'x\'"][*]'


def make_state():
    store = Store()
    for number in range(4):
        store.set("messages", f"{number + 5:012}", {"role": "user", "id": number, "n": [number]})
    store.set("session", "status", "running")
    store.set("session", "owner", "Ada")
    store.set("state", "customer", {"name": "Ada", "phones": [{"no": 1}, {"no": 2}], 7: "seven"})
    store.set("state", "at", 1)
    store.set("crm", "a", 1)
    store.set("crm", "b", {"c": (1, 2)})
    return store.snapshot()


LAST = {"role": "user", "id": 3, "n": []}


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("values.at", {("state", "at"): None}),
        ("values", {("state", "at"): None, ("state", "customer"): None}),
        ("values.nothing", {}),
        ("values.at.deeper", {}),
        ("namespaces.crm", {("crm", "a"): None, ("crm", "b"): None}),
        ("namespaces.crm.b.c", {("crm", "b"): {}}),
        ("namespaces.*.a", {("crm", "a"): None}),
        ("status", {("session", "status"): None}),
        ("session.owner", {("session", "owner"): None}),
        ("messages[1]", {("messages", "000000000006"): None}),
        ("messages[-1]", {("messages", "000000000008"): None}),
        ("messages[-1].n[0]", {("messages", "000000000008"): LAST}),
        ("messages[-9]", {}),
        ("messages[9]", {}),
    ],
)
def test_removing_a_path_removes_only_what_it_leads_to(path, gone):
    state = make_state()
    left = remove_paths(state, parse_paths([path]))
    expected = {
        (space, key): gone.get((space, key), value)
        for space, key, value in state.items()
        if gone.get((space, key), 0) is not None
    }
    found = {(space, key): value for space, key, value in left.items()}
    assert found == expected


def test_a_wildcard_matches_every_item():
    left = remove_paths(
        make_state(), parse_paths(["messages[*].id", "values.customer.phones[*].no", "values.at"])
    )
    assert [set(message) for _, _, message in left.items("messages")] == [{"role", "n"}] * 4
    assert left.get("state", "customer") == {"name": "Ada", "phones": [{}, {}], 7: "seven"}
    assert remove_paths(make_state(), ()).digest == make_state().digest


def test_a_number_in_a_path_matches_an_index_or_a_key():
    value = {7: "a", "7": "b", "list": [0, 1, 2]}
    dropped = parse_path("values.7").steps[1:]
    assert transform_at(value, dropped, lambda _: REMOVED) == {"list": [0, 1, 2]}
    assert transform_at(value, (7,), lambda _: REMOVED) == {"7": "b", "list": [0, 1, 2]}
    assert transform_at(value, ("list", -1), str) == {**value, "list": [0, 1, "2"]}


def test_removed_list_items_do_not_shift_the_others():
    def dropped(value, *steps):
        return transform_at(value, steps, lambda _: REMOVED)

    assert dropped([1, 2, 3], 1) == [1, "(ignored)", 3]
    assert dropped([1, 2, 3], 2) == [1, 2]
    assert dropped((1, 2, 3), -1) == (1, 2)
    assert dropped([[1, 2], [3]], WILDCARD, 0) == [["(ignored)", 2], []]
    assert dropped([1, 2, 3], WILDCARD) == []


def test_paths_lead_into_tuples_sets_and_registered_types():
    assert transform_at({"a": (1, {2, 3})}, ("a", 1, WILDCARD), lambda _: REMOVED) == {
        "a": (1, set())
    }
    assert transform_at([frozenset({1})], (0, WILDCARD), str) == [frozenset({"1"})]
    assert transform_at({"a": 1}, ("a", "b"), lambda _: REMOVED) == {"a": 1}
    box = Box({"name": "Ada", "n": 1})
    assert transform_at(box, ("name",), lambda _: "x").content == {"name": "x", "n": 1}
    assert transform_at(box, ("other",), lambda _: "x") is box
    assert transform_at(box, ("n",), lambda _: REMOVED) == {"name": "Ada"}


class Box:
    """A registered type that validates its content."""

    def __init__(self, content):
        if "n" not in content:
            raise RuntimeError("no n")
        self.content = content


register_type(Box, name="tests.paths.Box", encode=lambda box: box.content, decode=Box)


def test_messages_have_their_index_in_the_conversation():
    places = EntryPaths(make_state())
    assert places.steps_to("messages", "000000000007") == ("messages", 2)
    assert places.steps_to("messages", "000000000123") == ("messages", 123)
    assert places.steps_to("messages", "odd") == ("messages", "odd")
    assert places.steps_to("state", "x") == ("values", "x")
    assert places.steps_to("once", "x") == ("namespaces", "once", "x")
