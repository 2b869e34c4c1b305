"""Compare a state with a baseline, and report the differences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import BlockingSession, Document, Session, Store
from holdfast.documents.json_diff import diff_states
from holdfast.documents.json_file import read_json_file
from holdfast.documents.json_path import EntryPaths, parse_paths, remove_paths
from holdfast.stores.memory import MemoryStateStore
from holdfast.testing import assert_matches_baseline
from holdfast.testing.baselines import list_changes
from support.async_tests import async_test
from support.sample_values import text, values


def make_snapshot(**values):
    """Return a state with these values."""
    store = Store()
    for key, value in values.items():
        store.set("state", key, value)
    return store.snapshot()


def report_lines(path, before, after, **options):
    """Return the report of the differences of two states, one line per path, without indents."""
    assert_matches_baseline(make_snapshot(**before), path, update=True)
    with pytest.raises(AssertionError) as caught:
        assert_matches_baseline(make_snapshot(**after), path, **options)
    lines = [line.strip() for line in str(caught.value).splitlines()]
    return lines[2 : lines.index("", 2)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "baseline.json"


def test_added_and_removed_entries(path):
    assert report_lines(path, {"a": 1, "b": (1, 2)}, {"a": 1, "c": {"x": None}}) == [
        "- values.b",
        '{"$tuple": [1, 2]}',
        "+ values.c",
        '{"x": null}',
    ]


def test_changed_fields(path):
    before = {"x": {"a": 1, "gone": True, "t": (1, [2]), "odd.key": 1, 'q"': {"$ref": 1}}}
    after = {"x": {"a": 2, "t": (1, [3]), "odd.key": 2, 'q"': {"$ref": 2}, "new": {"y": [1]}}}
    assert report_lines(path, before, after) == [
        *("- values.x.gone", "true"),
        *("~ values.x.a", "- 1", "+ 2"),
        *("~ values.x.t[1][0]", "- 2", "+ 3"),
        *('~ values.x["odd.key"]', "- 1", "+ 2"),
        *('~ values.x["q\\""]["$ref"]', "- 1", "+ 2"),
        *("+ values.x.new", '{"y": [1]}'),
    ]


def test_reported_path_can_be_ignored(path):
    before = {"x": {"a": 1, "t": (1, [2]), "odd.key": 1, "$": {"$ref": 1}, "l": [1]}, "y": 1}
    after = {"x": {"a": 2, "t": (1, [3]), "odd.key": 2, "$": {"$ref": 2}, "l": [2]}, "z": 1}
    paths = [line[2:] for line in report_lines(path, before, after) if "values" in line]
    assert len(paths) == 7
    assert_matches_baseline(make_snapshot(**after), path, paths)


def test_changed_list_items(path):
    before = {"a": [1, 2], "b": [1, 2, 3], "c": {"l": [], "m": [0]}}
    after = {"a": [1, 2, 3, 4], "b": [1], "c": {"l": [1], "m": [0, 1]}}
    assert report_lines(path, before, after) == [
        *("+ values.a[2]", "3", "+ values.a[3]", "4"),
        *("- values.b[1]", "2", "- values.b[2]", "3"),
        *("+ values.c.l[0]", "1", "+ values.c.m[1]", "1"),
    ]


def test_value_of_another_type_is_reported_whole(path):
    assert report_lines(path, {"a": [1], "b": "1", "c": True}, {"a": (1,), "b": 1, "c": 1}) == [
        *("~ values.a", "- [1]", '+ {"$tuple": [1]}'),
        *("~ values.b", '- "1"', "+ 1"),
        *("~ values.c", "- true", "+ 1"),
    ]


def test_sets_and_dicts_with_other_keys_are_reported_whole(path):
    before = {"x": {"s": {1, 2}, "m": {1.5: 2, b"x": 4}, "n": {1: 2}}}
    after = {"x": {"s": {1, 3}, "m": {1.5: 5, b"x": 6}, "n": {1: 3}}}
    assert report_lines(path, before, after) == [
        *("~ values.x.s", '- {"$set": [1, 2]}', '+ {"$set": [1, 3]}'),
        "~ values.x.m",
        '- {"$map": [[1.5, 2], [{"$bytes": "eA=="}, 4]]}',
        '+ {"$map": [[1.5, 5], [{"$bytes": "eA=="}, 6]]}',
        *("~ values.x.n[1]", "- 2", "+ 3"),
    ]


def test_long_texts_are_shortened_to_the_difference(path):
    before, after = "a" * 500 + "old" + "b" * 500, "a" * 500 + "new" + "b" * 500
    _, old, new = report_lines(path, {"x": before}, {"x": after})
    assert (len(old), len(new)) == (len(new), len(old))
    assert old.startswith('- …"aaa')
    assert "aaaoldbbb" in old
    assert "aaanewbbb" in new
    assert new.endswith("…")


def test_multiline_texts_are_diffed_by_line(path):
    before = "\n".join(f"line {number}" for number in range(50))
    assert report_lines(path, {"x": before}, {"x": before.replace("line 7\n", "LINE 7\n")}) == [
        "~ values.x",
        "@@ -7,3 +7,3 @@",
        *("line 6", "-line 7", "+LINE 7", "line 8"),
    ]
    assert report_lines(path, {"x": "a\n"}, {"x": "a"}) == ["~ values.x", '- "a\\n"', '+ "a"']
    lines = report_lines(path, {"x": before}, {"x": before.replace("line", "LINE")})
    assert lines[-1] == "…"
    assert len(lines) == 22


def test_long_values_and_many_changes_are_shortened(path):
    lines = report_lines(path, {}, {f"k{number:03}": "x" for number in range(100)})
    assert len(lines) == 81
    assert lines[-1] == "… and 60 more places"
    assert report_lines(path, {}, {"x": list(range(1000))})[1].endswith("… (4,890 characters)")
    assert report_lines(path, {}, {"x": "y" * 1000})[1] == f'"{"y" * 160}"…'


def test_text_added_at_the_end_is_shown(path):
    _, old, new = report_lines(path, {"x": "a" * 500}, {"x": "a" * 500 + "more"})
    assert old == f'- …"{"a" * 40}"'
    assert new == f'+ …"{"a" * 40}more"'


def test_zero_differs_from_minus_zero(path):
    assert report_lines(path, {"x": [0.0]}, {"x": [-0.0]}) == ["~ values.x[0]", "- 0.0", "+ -0.0"]


@given(st.dictionaries(text, values, max_size=3), st.dictionaries(text, values, max_size=3))
def test_every_reported_path_can_be_ignored(before, after):
    places = [
        where
        for each in diff_states(make_snapshot(**after), make_snapshot(**before))
        for _, where, _ in list_changes(each, EntryPaths(make_snapshot()))
    ]
    assert bool(places) == (make_snapshot(**after).digest != make_snapshot(**before).digest)
    paths = parse_paths(places)
    assert (
        remove_paths(make_snapshot(**after), paths).digest
        == remove_paths(make_snapshot(**before), paths).digest
    )


def test_messages_are_reported_by_index(path):
    with BlockingSession.open("memory:", agent_id="bot", session_id="ses") as session:
        session.add_message("user", "a", id=1)
        session.add_message("user", "b", id=2)
        assert_matches_baseline(session, path, update=True)
        session.pop_message()
        with pytest.raises(AssertionError, match=r"in 1 place:\n\n  - messages\[1\]\n"):
            assert_matches_baseline(session, path)
        session.add_message("user", "b", id=3)
        session.status = "running"
        assert_matches_baseline(session, path, ["messages[*].id", "status"])
        with pytest.raises(AssertionError, match=r"~ session.*status|~ status\n"):
            assert_matches_baseline(session, path, ["messages[*].id"])
        written = Document.from_dict(read_json_file(path))
        assert (written.agent_id, written.session_id, written.events) == ("bot", "ses", ())


@async_test
async def test_every_comparable_type(path):
    session = await Session.open(MemoryStateStore(), agent_id="bot")
    session.set("x", 1)
    assert_matches_baseline(session, path, update=True)
    await session.commit()
    document = await session.export()
    assert_matches_baseline(document, path)
    assert_matches_baseline(document.snapshot, path)
    session.set("x", 2)
    await session.commit()
    assert_matches_baseline(await session.export(), path, update=True)
    assert len(Document.from_dict(read_json_file(path)).events) == 3
    with pytest.raises(TypeError, match="expected a session, .* got 'ses'"):
        assert_matches_baseline("ses", path)


def test_baseline_is_written_only_with_update(path):
    with pytest.raises(AssertionError, match="no baseline .* pytest --holdfast-update"):
        assert_matches_baseline(make_snapshot(), path)
    assert_matches_baseline(make_snapshot(a=1), path, update=True)
    before = path.read_bytes()
    with pytest.raises(AssertionError):
        assert_matches_baseline(make_snapshot(a=2), path)
    assert_matches_baseline(make_snapshot(a=1), path, update=True)
    assert path.read_bytes() == before


def test_large_values_are_reported_as_references(path):
    with BlockingSession.open(MemoryStateStore(), agent_id="a", session_id="s") as session:
        session.set("text", "x" * 100_000)
        session.set("image", session.attach(b"pixels", name="a.png"))
        assert_matches_baseline(session, path, update=True)
        assert_matches_baseline(session, path)
        session.set("text", "y" * 200_000)
        session.set("image", None)
        with pytest.raises(AssertionError) as caught:
            assert_matches_baseline(session, path)
    report = str(caught.value)
    assert "- <text, 100.0 kB, sha256:" in report
    assert "+ <text, 200.0 kB, sha256:" in report
    assert '- <image/png "a.png", 6 bytes>' in report
    assert "xxxx" not in report
