"""The ignore rules, compared with Git's own."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.workspaces.folder import Folder
from holdfast.workspaces.ignore import IgnoreRules, IgnoreTree
from holdfast.workspaces.scan import ScanOptions, scan_folder
from holdfast.workspaces.stat_cache import StatCache
from support.file_trees import write_tree

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

PATTERNS = [
    "*", "!*/", "*.py", "!*.py", "a/", "!a/", "a", "!a", "/a", "!/a", "a/b", "!a/b", "a/*", "!a/*",
    "**/b", "a/**", "!a/**", "!a/**/c.py", "**", "*/", "!**/", "/*", "!/*", "[ab]", "?", "build/",
    "!build/", "a/b/", "**/a/**/c.py", "!/a/b/c.py", "*.log", "!d.log", "# a", "", "\\#x", "c.py  ",
    "x\\ ", "[", "!",
]  # fmt: skip
FOLDERS = ["", "a/", "b/", "build/", "a/a/", "a/b/", "b/a/", "build/b/", "a/b/a/"]
FILES = ["c.py", "d.log", "x", "e.txt", "#x", "x "]

texts = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4).map("\n".join)


def list_with_git(root):
    """Return the files that Git does not ignore."""
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    command = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "XDG_CONFIG_HOME": str(root)}
    found = subprocess.run(command, cwd=root, env=environment, capture_output=True, check=True)
    return sorted(filter(None, found.stdout.decode().split("\0")))


def list_with_scan(root):
    with Folder(root) as folder:
        return sorted(scan_folder(folder, ScanOptions(), StatCache()).files)


@needs_git
@given(
    files=st.sets(st.tuples(st.sampled_from(FOLDERS), st.sampled_from(FILES)), min_size=4),
    rules=st.dictionaries(st.sampled_from(FOLDERS[:6]), texts, min_size=1, max_size=3),
)
def test_the_same_files_are_ignored_as_by_git(files, rules, tmp_path_factory):
    root = tmp_path_factory.mktemp("repo")
    ignore_files = {f"{folder}.gitignore": text for folder, text in rules.items()}
    paths = sorted({*(folder + name for folder, name in files), *ignore_files})
    write_tree(root, {path: ignore_files.get(path, "") for path in paths})
    expected = list_with_git(root)
    assert list_with_scan(root) == expected
    tree = IgnoreTree(IgnoreRules.create(), ignore_files)
    assert [path for path in paths if not tree.is_ignored(path)] == expected
    shutil.rmtree(root)


@needs_git
def test_the_exclude_file_of_a_repository_counts(root):
    write_tree(root, {"a.log": "", "b.log": "", ".gitignore": "!b.log\n", "c.txt": ""})
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("*.log\n")
    assert list_with_scan(root) == list_with_git(root) == [".gitignore", "b.log", "c.txt"]


def test_holdfastignore_has_precedence_over_gitignore():
    tree = IgnoreTree(
        IgnoreRules.create(),
        {
            ".gitignore": "out/\n*.log\n",
            ".holdfastignore": "!out/\nsecret\n",
            "a/.gitignore": "!x.log",
        },
    )
    assert not tree.is_ignored("out/x")
    assert tree.is_ignored("a/secret")
    assert tree.is_ignored("b/x.log")
    assert not tree.is_ignored("a/x.log")


def test_patterns_of_the_caller_have_precedence_over_ignore_files():
    tree = IgnoreTree(IgnoreRules.create(["*.tmp", "!keep.log"]), {".gitignore": "*.log\n!x.tmp\n"})
    assert tree.is_ignored("x.tmp")
    assert tree.is_ignored("a.log")
    assert not tree.is_ignored("keep.log")


def test_fingerprints_are_equal_exactly_for_equal_rules():
    rules = IgnoreRules.create(["a"])
    assert rules.enter("x/", None, None) is rules
    one = rules.enter("x/", "*.log", None)
    assert one.fingerprint == IgnoreRules.create(["a"]).enter("x/", "*.log", None).fingerprint
    others = {
        IgnoreRules.create(["b"]).enter("x/", "*.log", None).fingerprint,
        rules.enter("y/", "*.log", None).fingerprint,
        rules.enter("x/", None, "*.log").fingerprint,
        rules.fingerprint,
    }
    assert len(others) == 4
    assert one.fingerprint not in others


def test_an_ignore_file_need_not_be_utf8(root):
    write_tree(root, {".gitignore": b"\xe4.txt\n*.log\n", ".git/info/exclude": b"\xff\n*.tmp\n"})
    write_tree(root, {"a.log": "", "b.tmp": "", "c.txt": ""})
    assert list_with_scan(root) == [".gitignore", "c.txt"]


def test_a_byte_order_mark_is_not_part_of_the_first_pattern(root):
    write_tree(root, {".gitignore": b"\xef\xbb\xbf*.log\r\n", "a.log": "", "b": ""})
    assert list_with_scan(root) == [".gitignore", "b"]
