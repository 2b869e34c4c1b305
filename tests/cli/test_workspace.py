"""``holdfast workspace``."""

from __future__ import annotations

import json
import shlex
import zipfile

import pytest

from holdfast.cli import workspace
from support.file_trees import read_tree, write_tree


@pytest.fixture
def repo(sample, tmp_path):
    """A folder with two files, beside the sample store."""
    write_tree(tmp_path / "repo", {"a.txt": "one\n", "src/b.py": "print(1)\n"})
    return tmp_path / "repo"


def capture(run, *options):
    ran = run("workspace", "capture", "ses_1", "--folder", "repo", "--format", "json", *options)
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


def test_capture_reports_what_it_found(run, repo):
    ran = run("workspace", "capture", "ses_1", "--folder", "repo")
    assert (ran.code, ran.err) == (0, "")
    seq = ran.out.split("event ")[1].split(":")[0]
    assert ran.out == f"captured 2 files, 13 bytes, at event {seq}: 2 added, 0 changed, 0 removed\n"
    write_tree(repo, {"a.txt": "two\n", "large": "x" * 50, "b.log": "", "c.tmp": ""})
    found = capture(run, "--max-file-size", "20", "--ignore", "*.log", "--ignore", "*.tmp")
    assert found["paths"] == ["a.txt"]
    assert found["folder"] == str(repo)
    assert found["snapshot_id"] is None
    assert found["skipped"] == [
        {"path": "large", "reason": "50 bytes, more than max_file_size (20)"}
    ]


def test_capture_prints_what_it_skipped(run, repo, monkeypatch):
    monkeypatch.setattr(workspace, "MAX_LINES", 1)
    ran = run("workspace", "capture", "ses_1", "--folder", "repo", "--max-total-size", "3")
    assert "skipped a.txt: 4 bytes, beyond max_total_size (3)\nskipped 1 more\n" in ran.out


def test_capture_saves_a_snapshot_with_a_tag(run, repo):
    ran = run("workspace", "capture", "ses_1", "--folder", "repo", "--tag", "step=1")
    snapshot_id = ran.out.splitlines()[-1].removeprefix("snapshot ")
    assert snapshot_id in run("state", "list", "--session", "ses_1", "--format", "json").out
    assert run("workspace", "restore", "ses_1", "--at", "tag:step=1", "--folder", "repo").code == 0


def test_restore_and_undo(run, repo):
    first = capture(run)
    before = read_tree(repo)
    write_tree(repo, {"a.txt": "broken\n", "junk": "x"})
    (repo / "src/b.py").chmod(0o755)
    capture(run)
    after = read_tree(repo)
    at = ("--at", str(first["seq"]), "--folder", "repo")
    dry = run("workspace", "restore", "ses_1", *at, "--dry-run")
    assert dry.out == "~ a.txt\n- junk\n~ src/b.py\n3 files would change\n"
    assert read_tree(repo) == after
    run("workspace", "restore", "ses_1", *at).assert_failed("pass --yes to confirm")
    ran = run("workspace", "restore", "ses_1", *at, "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert read_tree(repo) == before
    undo = ran.out.splitlines()[-1].removeprefix("undo with: holdfast ")
    again = run(*shlex.split(undo), "--yes")
    assert (again.code, again.out.splitlines()[:3]) == (0, ["~ a.txt", "+ junk", "~ src/b.py"])
    assert read_tree(repo) == after
    nothing = run("workspace", "restore", "ses_1", "--at", "latest", "--folder", "src", "--dry-run")
    nothing.assert_failed("cannot open folder")


def test_a_changed_folder_needs_force(run, repo):
    first = capture(run)
    write_tree(repo, {"a.txt": "mine\n"})
    at = ("--at", str(first["seq"]), "--folder", "repo", "--yes")
    ran = run("workspace", "restore", "ses_1", *at)
    ran.assert_failed("changed since its last capture: 'a.txt'", "--force")
    assert ran.out == "~ a.txt  (changed since the last capture)\n"
    forced = run("workspace", "restore", "ses_1", *at, "--force", "--format", "json")
    found = json.loads(forced.out)
    assert found["restored"]
    assert found["written"] == found["changed"] == ["a.txt"]
    assert (repo / "a.txt").read_text() == "one\n"
    again = run("workspace", "restore", "ses_1", *at)
    assert again.out == "nothing to change\n"


def test_the_conversation_is_restored_together_with_the_files(run, repo, sample):
    captured = run("workspace", "capture", "ses_1", "--folder", "repo", "--tag", "step=1")
    assert captured.code == 0
    write_tree(repo, {"a.txt": "broken\n"})
    capture(run)
    assert run("state", "restore", "ses_1", sample.first, "--yes").code == 0
    options = ("--at", "tag:step=1", "--folder", "repo", "--conversation", "--yes", "--force")
    ran = run("workspace", "restore", "ses_1", *options)
    assert "undo with: holdfast workspace restore --conversation --at " in ran.out
    assert (repo / "a.txt").read_text() == "one\n"
    assert run("state", "diff", "ses_1@tag:step=1", "ses_1").out == "no difference\n"


def test_the_undo_command_ignores_the_same_files(run, repo):
    rules = ("--ignore", "*.csv", "--no-gitignore")
    write_tree(repo, {"data.csv": "1"})
    first = capture(run, *rules)
    write_tree(repo, {"a.txt": "two\n"})
    capture(run, *rules)
    at = ("--at", str(first["seq"]), "--folder", "repo", *rules, "--yes")
    undo = run("workspace", "restore", "ses_1", *at).out.splitlines()[-1].split("holdfast ")[1]
    assert run(*shlex.split(undo), "--yes").code == 0
    assert (repo / "a.txt").read_text() == "two\n"
    assert (repo / "data.csv").exists()


def test_a_file_that_the_restored_rules_ignore_stays(run, repo):
    write_tree(repo, {".gitignore": ".env\n", ".env": "secret"})
    first = capture(run)
    (repo / ".gitignore").unlink()
    capture(run)
    ran = run("workspace", "restore", "ses_1", "--at", str(first["seq"]), "--folder", "repo", "-y")
    assert "  .env stays: the restored rules ignore it\n" in ran.out
    assert (repo / ".env").exists()
    assert capture(run, "--no-gitignore")["paths"] == [".env"]


def test_a_long_plan_is_shortened(run, repo, monkeypatch):
    first = capture(run)
    write_tree(repo, {"a.txt": "2", "src/b.py": "2"})
    monkeypatch.setattr(workspace, "MAX_LINES", 1)
    at = ("--at", str(first["seq"]), "--folder", "repo", "--dry-run")
    assert "\n  and 1 more\n" in run("workspace", "restore", "ses_1", *at).out


def test_diff_shows_text_and_sizes(run, repo):
    first = capture(run)
    write_tree(repo, {"a.txt": "two\n", "new.bin": b"\0", "link": "->a.txt"})
    (repo / "src/b.py").chmod(0o755)
    ran = run("workspace", "diff", "ses_1", "--folder", "repo")
    assert ran.out == (
        "2 added, 0 removed, 2 changed\n"
        "~ a.txt  4 bytes → 4 bytes\n"
        "    --- a/a.txt\n    +++ b/a.txt\n    @@ -1 +1 @@\n    -one\n    +two\n"
        "+ link  link to a.txt\n"
        "    --- /dev/null\n    +++ b/link\n    @@ -0,0 +1 @@\n    +a.txt\n"
        "    \\ No newline at end of file\n"
        "+ new.bin  1 byte\n"
        "~ src/b.py  mode 644 → 755\n"
    )
    second = capture(run)
    refs = (str(first["seq"]), str(second["seq"]))
    stat = run("workspace", "diff", "ses_1", *refs, "--stat")
    assert "@@" not in stat.out
    found = json.loads(run("workspace", "diff", "ses_1", *refs, "--format", "json").out)
    assert (found["added"], found["removed"], found["changed"]) == (2, 0, 2)
    assert found["files"][0]["text"].endswith("-one\n+two\n")
    assert run("workspace", "diff", "ses_1", "--folder", "repo").out == "no difference\n"


def test_export_writes_a_folder_or_an_archive(run, repo, tmp_path):
    first = capture(run)
    write_tree(repo, {"a.txt": "two\n"})
    capture(run)
    ran = run("workspace", "export", "ses_1", "--at", str(first["seq"]), "--output", "out")
    assert ran.out == "wrote 2 files to out\n"
    assert (tmp_path / "out/a.txt").read_text() == "one\n"
    done = run("workspace", "export", "ses_1", "-o", "out.zip", "--format", "json")
    assert json.loads(done.out)["files"] == 2
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert archive.read("a.txt") == b"two\n"
    run("workspace", "export", "ses_1", "--output", "out").assert_failed("out exists")


def test_wrong_names_are_reported(run, repo):
    run("workspace", "capture", "ses_2x").assert_failed("no session 'ses_2x'")
    run("workspace", "restore", "ses_1", "--at", "zzz").assert_failed("has no snapshot 'zzz'")
    run("workspace", "restore", "ses_1").assert_usage_error("--at")
    run("workspace", "capture", "ses_1", "--folder", "nowhere").assert_failed("cannot open folder")
    run("workspace", "capture", "ses_1", "--max-file-size", "-1").assert_usage_error("0")
