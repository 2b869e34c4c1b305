"""What a restore would do."""

from __future__ import annotations

import pytest

from holdfast.workspaces.entries import FileEntry
from holdfast.workspaces.errors import WorkspaceError
from holdfast.workspaces.plan import compare_files, find_changed, plan_restore
from holdfast.workspaces.scan import Scan, SkippedFile

ONE, TWO = FileEntry("1" * 64, 1, 0o644), FileEntry("2" * 64, 2, 0o644)
ONE_EXECUTABLE = FileEntry("1" * 64, 1, 0o755)
LINK = FileEntry(link="x")


def test_files_are_written_removed_and_get_modes():
    scan = Scan(files={"same": ONE, "changed": ONE, "mode": ONE, "extra": ONE, "kind": LINK})
    target = {"same": ONE, "changed": TWO, "mode": ONE_EXECUTABLE, "new/a": ONE, "kind": ONE}
    plan = plan_restore(scan, target)
    assert plan.write == ["changed", "kind", "new/a"]
    assert plan.chmod == ["mode"]
    assert plan.remove == ["extra"]
    assert plan.first == frozenset()
    assert not plan.is_empty
    assert plan_restore(Scan(files=target), target).is_empty


def test_a_file_that_the_restored_rules_ignore_is_kept():
    plan = plan_restore(
        Scan(files={".env": ONE, "x": ONE}), {}, is_kept=lambda path: path == ".env"
    )
    assert plan.remove == ["x"]
    assert plan.kept == [".env"]


def test_files_in_the_way_of_folders_are_removed_first():
    scan = Scan(files={"a": ONE, "b/c": LINK, "z": ONE})
    plan = plan_restore(scan, {"a/x": ONE, "b/c/d/e": ONE})
    assert plan.first == {"a", "b/c"}
    assert plan.remove == ["a", "b/c", "z"]


def test_folders_in_the_way_of_files_are_removed_first():
    scan = Scan(files={"a/b/c": ONE, "a/d": ONE, "e/f": ONE}, folders={"a", "a/b", "a/empty", "e"})
    plan = plan_restore(scan, {"a": ONE})
    assert plan.first == {"a/b/c", "a/d"}
    assert plan.replaced_folders == ["a/empty", "a/b", "a"]


@pytest.mark.parametrize(
    ("scan", "target", "named"),
    [
        (Scan(skipped=[SkippedFile("a", "a FIFO")]), "a", "'a' is in the way .a FIFO"),
        (Scan(skipped=[SkippedFile("a", "a FIFO")]), "a/b", "'a' is in the way .a FIFO"),
        (Scan(ignored={"a"}), "a/b/c", "'a' is in the way .an ignored file"),
        (Scan(ignored_folders={"a"}), "a", "'a' is in the way .an ignored folder"),
        (Scan(folders={"a"}, ignored={"a/x"}), "a", "'a/x' is in the way"),
        (Scan(folders={"a"}, ignored_folders={"a/x/y"}), "a", "'a/x/y' is in the way"),
        (Scan(files={"a/keep": ONE}, folders={"a"}), "a", "'a/keep' is in the way"),
        (Scan(files={"keep": ONE}), "keep/a", "'keep' is in the way"),
    ],
)
def test_what_is_not_captured_is_never_replaced(scan, target, named):
    with pytest.raises(WorkspaceError, match=named) as caught:
        plan_restore(scan, {target: ONE}, is_kept=lambda path: path.endswith("keep"))
    assert caught.value.path == target


def test_names_that_differ_in_case_collide_where_it_does_not_matter():
    target = {"README": ONE, "readme": TWO}
    assert plan_restore(Scan(), target).write == ["README", "readme"]
    with pytest.raises(WorkspaceError, match="'README' and 'readme' are the same file"):
        plan_restore(Scan(), target, case_insensitive=True)
    scan = Scan(files={"README": ONE})
    plan = plan_restore(scan, {"readme": ONE}, case_insensitive=True)
    assert plan.first == {"README"}


def test_changes_since_the_last_capture_are_found():
    base = {"a": ONE, "b": ONE, "gone": ONE, "restored": ONE, "mode": ONE}
    files = {"a": TWO, "b": ONE, "restored": TWO, "new": ONE, "mode": ONE_EXECUTABLE}
    target = {"a": ONE, "b": ONE, "gone": ONE, "restored": TWO, "mode": ONE}
    plan = plan_restore(Scan(files=files), target)
    assert find_changed(plan, files, base) == ["a", "gone", "mode", "new"]
    assert find_changed(plan, files, files) == []


def test_files_are_compared():
    one = {"a": ONE, "b": ONE, "c": ONE}
    assert compare_files({"a": ONE, "b": TWO, "d": ONE}, one) == (["d"], ["b"], ["c"])
    assert compare_files(dict(one), one) == ([], [], [])
