"""Diffs of two sets of files."""

from __future__ import annotations

import shutil
import subprocess
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.workspaces import compare
from holdfast.workspaces.compare import diff_files, diff_texts
from holdfast.workspaces.entries import FileEntry
from support.async_tests import run_async


def describe(files):
    return {
        path: content
        if isinstance(content, FileEntry)
        else FileEntry(sha256(content).hexdigest(), len(content), 0o644)
        for path, content in files.items()
    }


def compare_trees(before, after, **options):
    async def read_before(path, _):
        return before[path]

    async def read_after(path, _):
        return after[path]

    return run_async(
        diff_files(describe(before), describe(after), read_before, read_after, **options)
    )


def test_added_removed_and_changed_files_have_text_diffs():
    found = compare_trees(
        {"a": b"one\ntwo\n", "gone": b"x\n", "same": b"s"},
        {"a": b"one\n2\n", "new": b"y", "same": b"s"},
    )
    assert [each.path for each in found.added] == ["new"]
    assert [each.path for each in found.removed] == ["gone"]
    assert [each.path for each in found.changed] == ["a"]
    assert found.changed[0].text == "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert found.removed[0].text == "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    assert found.added[0].text == (
        "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+y\n\\ No newline at end of file\n"
    )
    assert found.text == "".join(each.text for each in found.files)
    assert found
    assert not compare_trees({}, {})


def test_binary_and_large_files_and_modes_have_no_text(monkeypatch):
    monkeypatch.setattr(compare, "MAX_TEXT_SIZE", 10)
    entry = describe({"mode": b"x"})["mode"]
    found = compare_trees(
        {"nul": b"a", "latin": b"a", "large": b"a", "mode": entry},
        {
            "nul": b"\0",
            "latin": b"\xff",
            "large": b"a" * 11,
            "mode": FileEntry(entry.digest, entry.size, 0o755),
        },
    )
    assert [(each.path, each.text) for each in found.changed] == [
        ("large", None), ("latin", None), ("mode", None), ("nul", None),
    ]  # fmt: skip
    large = found.changed[0].to_json()
    assert (large["before"]["size"], large["after"]["size"]) == (1, 11)


def test_text_can_be_left_out_and_is_limited(monkeypatch):
    after = {"a": b"1", "b": b"2"}
    assert compare_trees({}, after, text=False).text == ""
    monkeypatch.setattr(compare, "MAX_TEXTS", 1)
    assert [each.text is None for each in compare_trees({}, after).files] == [False, True]


def test_the_text_of_a_link_is_its_target():
    found = compare_trees({"a": FileEntry(link="x")}, {"a": FileEntry(link="y")})
    assert "-x\n" in found.text
    assert "+y\n" in found.text


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
@given(
    before=st.text("ab\n\r\x0c\u2028", max_size=12), after=st.text("ab\n\r\x0c\u2028", max_size=12)
)
def test_patch_applies_a_text_diff(before, after, tmp_path_factory):
    if not before or not after or before == after:
        return
    folder = tmp_path_factory.mktemp("patch")
    (folder / "f").write_bytes(before.encode())
    text = diff_texts("f", before, after, is_added=False, is_removed=False)
    command = ["patch", "--binary", "-s", "-p1"]
    subprocess.run(command, cwd=folder, input=text.encode(), check=True, capture_output=True)
    assert (folder / "f").read_bytes() == after.encode()
