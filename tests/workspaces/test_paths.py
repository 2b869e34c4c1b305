"""Which paths may be written."""

from __future__ import annotations

import pytest

from holdfast import IntegrityError
from holdfast.workspaces.paths import (
    find_collision,
    find_path_problem,
    fold_path,
    is_case_insensitive,
    validate_path,
    validate_tree,
)


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "../x", "a/../../x", "a/./b", "a//b", "a/", "x\0y", ".", "..",
        ".git/hooks/post-commit", "a/.git", ".GIT/config", ".git /x", ".git./x", "git~1/config",
        ".g\u200cit/config", "\u200c.git", ".Holdfast/state.db", "holdfa~1/state.db",
        ".holdfast-restore-1/0",
    ],
)  # fmt: skip
def test_an_unsafe_path_is_rejected(path):
    with pytest.raises(IntegrityError, match="unsafe path"):
        validate_path(path)


@pytest.mark.parametrize(
    "path",
    ["a", "a/b.txt", ".gitignore", ".github/x", "..a", "a..", "ü/ñ", "a b", "git", "a~1.txt"],
)
def test_an_ordinary_path_is_accepted(path):
    assert validate_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["c:/x", "a\\b", "nul", "COM1.txt", "a/aux", "x.", "x ", "a?b", "a*", 'a"b', "a|b", "a\tb"],
)
def test_names_that_windows_cannot_have_are_rejected_there(path):
    assert find_path_problem(path, windows=True)
    assert find_path_problem(path, windows=False) is None


def test_a_file_cannot_be_a_folder_too():
    validate_tree(["a/b", "a/c", "ab"])
    with pytest.raises(IntegrityError, match="'a/b' and a file 'a/b/c/d' below it"):
        validate_tree(["a/b/c/d", "a/b"])


def test_collisions_of_case_and_of_normal_forms_are_found():
    assert find_collision(["a/b", "c", "b"]) is None
    assert find_collision(["README", "readme"]) == ("README", "readme")
    assert find_collision(["Src/a", "src/b"]) == ("Src", "src")
    assert fold_path("\u00e9") == fold_path("e\u0301")
    assert find_collision(["\u00e9", "e\u0301"]) is not None


def test_a_case_sensitive_folder_is_recognized(root, monkeypatch):
    expected = (root.parent / root.name.swapcase()).exists()
    assert is_case_insensitive(str(root)) is expected
    (root / "Name").touch()
    assert is_case_insensitive(str(root)) is (root / "nAME").exists()
    monkeypatch.setattr("holdfast.workspaces.paths.is_same_file", lambda *_: True)
    assert is_case_insensitive(str(root))
    assert is_case_insensitive(str(root / "missing")) is False
