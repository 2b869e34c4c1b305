"""``holdfast state export``."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast.cli import export
from holdfast.documents.limits import DocumentLimits
from holdfast.transfer.manager import SnapshotManager


def test_export_the_latest_session_of_an_agent(run, sample, tmp_path):
    ran = run("state", "export", "research-bot", "--output", "x.json")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "x.json: 2 messages, 10 events of research-bot/ses_1\n"
    tree = json.loads((tmp_path / "x.json").read_bytes())
    assert (tree["agent_id"], tree["session_id"]) == ("research-bot", "ses_1")


def test_environment_that_is_not_text_is_an_error(run, sample, monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_ENVIRONMENT", os.fsdecode(b"pr\xffod"))
    for output in ("x.json", "-"):
        ran = run("state", "export", "research-bot", "-o", output)
        ran.assert_failed("HOLDFAST_ENVIRONMENT", "not UTF-8")
        assert ran.out == ""
    assert not (tmp_path / "x.json").exists()


def test_existing_file_keeps_its_mode(run, sample, tmp_path):
    target = tmp_path / "x.json"
    target.touch(mode=0o600)
    assert run("state", "export", "research-bot", "-o", "x.json").code == 0
    assert json.loads(target.read_bytes())["session_id"] == "ses_1"
    assert target.stat().st_mode & 0o777 == 0o600


def test_export_a_session_a_snapshot_and_tags(run, sample, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_ENVIRONMENT", "production")
    options = ["--session", "ses_1", "--snapshot", sample.first, "--tag", "a=1", "--tag", "b=x=y"]
    assert run("state", "export", "research-bot", *options, "-o", "x.json.gz").code == 0
    tree = json.loads(gzip.decompress((tmp_path / "x.json.gz").read_bytes()))
    assert tree["snapshot_id"] == sample.first
    assert tree["source_environment"] == "production"
    assert tree["tags"]["a"] == "1"
    assert tree["tags"]["b"] == "x=y"
    assert tree["tags"]["turn"] == "1"
    assert len(tree["state"]["messages"]) == 1


def test_export_by_session_id(run, sample, tmp_path):
    ran = run("state", "export", "ses_1", "-o", "x.json")
    assert (ran.code, ran.err) == (0, "x.json: 2 messages, 10 events of research-bot/ses_1\n")
    ran = run("state", "export", "ses_shared", "-o", "x.json")
    ran.assert_failed("several agents: ann, bob", "holdfast state export ann --session ses_shared")
    ran = run("state", "export", "ses_9", "-o", "x.json")
    ran.assert_failed("no agent or session 'ses_9'", "ses_1")


def test_id_of_both_an_agent_and_a_session_is_ambiguous(run, sample):
    assert run("state", "fork", "ses_1", "ann").code == 0
    ran = run("state", "export", "ann", "-o", "x.json")
    ran.assert_failed(
        "'ann' is both an agent and a session",
        "holdfast state export research-bot --session ann",
        "holdfast state export ann --session ses_shared",
    )
    for words in (["research-bot", "--session", "ann"], ["ann", "--session", "ses_shared"]):
        assert run("state", "export", *words, "-o", "x.json").code == 0


def test_agent_whose_only_session_has_its_id_is_not_ambiguous(run, sample):
    url = "sqlite:///state.db"
    with holdfast.BlockingSession.open(url, agent_id="eve", session_id="eve") as session:
        session.add_message("user", "hello")
    ran = run("state", "export", "eve", "-o", "x.json")
    assert (ran.code, ran.err) == (0, "x.json: 1 message, 2 events of eve/eve\n")


@pytest.mark.parametrize("ref", ["tag:turn=1", "5", "first"])
def test_export_a_ref(run, sample, tmp_path, ref):
    ref = sample.first if ref == "first" else ref
    words = [["research-bot", "--snapshot", ref], ["ses_1", "--snapshot", ref], [f"ses_1@{ref}"]]
    for each in words:
        assert run("state", "export", *each, "-o", "x.json").code == 0
        tree = json.loads((tmp_path / "x.json").read_bytes())
        assert len(tree["events"]) == 5
        assert tree["state"]["values"] == {"old": 1, "plan": ["read", "compare"]}
        assert run("state", "show", "x.json").code == 0
    run("state", "export", f"ses_1@{ref}", "--snapshot", ref, "-o", "-").assert_usage_error(
        "--snapshot"
    )


def test_dash_writes_only_the_document_to_stdout(run, sample):
    ran = run("state", "export", "research-bot", "--output", "-")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["session_id"] == "ses_1"


def test_redact_removes_secrets_and_paths(run, sample, tmp_path):
    ran = run("state", "export", "research-bot", "--redact", "-o", "x.json")
    assert ran.code == 0
    assert "redactions" in ran.err
    assert b"ada@example.com" not in (tmp_path / "x.json").read_bytes()
    ran = run("state", "export", "research-bot", "--redact-path", "values.plan", "-o", "y.json")
    assert ran.code == 0
    assert b"ada@example.com" in (tmp_path / "y.json").read_bytes()
    assert b'"answer"' not in (tmp_path / "y.json").read_bytes()


@pytest.mark.parametrize(
    ("option", "number", "kind"),
    [
        ("--redact-cards", "4111 1111 1111 1111", "card number"),
        ("--redact-ibans", "DE89 3704 0044 0532 0130 00", "IBAN"),
        ("--redact-ssns", "123-45-6789", "SSN"),
    ],
)
def test_redact_cards_ibans_and_ssns(run, sample, tmp_path, option, number, kind):
    exported = json.loads(run("state", "export", "research-bot", "-o", "-").out)
    exported["state"]["messages"][0]["content"] = f"It is {number}, ada@example.com"
    exported["events"] = []
    del exported["digest"]
    (tmp_path / "a.json").write_text(json.dumps({**exported, "session_id": "ses_numbers"}))
    run("state", "import", "a.json")
    ran = run("state", "export", "research-bot", "--session", "ses_numbers", option, "-o", "x.json")
    assert ran.code == 0, ran.err
    text = (tmp_path / "x.json").read_text()
    assert number not in text
    assert f"It is [redacted: {kind}], ada@example.com" in text


def test_invalid_redact_path_is_wrong_usage(run, sample):
    ran = run("state", "export", "research-bot", "--redact-path", "nowhere", "-o", "x.json")
    ran.assert_usage_error("--redact-path")


@pytest.mark.parametrize("tag", ["plain", "=value", ""])
def test_invalid_tag_is_wrong_usage(run, sample, tmp_path, tag):
    ran = run("state", "export", "research-bot", "--tag", tag, "-o", "x.json")
    ran.assert_usage_error("K=V", "--tag")
    assert not (tmp_path / "x.json").exists()


def test_export_needs_an_output(run, sample):
    run("state", "export", "research-bot").assert_usage_error("--output")


@pytest.mark.parametrize("output", ["nowhere/x.json", ".", "state.db/x.json"])
def test_unwritable_output_fails_before_the_export(run, sample, monkeypatch, output):
    def never(*_):
        raise AssertionError("the store was opened")

    monkeypatch.setattr(export, "open_existing_store", never)
    run("state", "export", "research-bot", "-o", output).assert_failed("--output")


def test_unknown_agent_gets_similar_names(run, sample):
    ran = run("state", "export", "research-bt", "-o", "x.json")
    ran.assert_failed("no agent or session 'research-bt'", "research-bot")


def test_unknown_session_gets_similar_names(run, sample):
    ran = run("state", "export", "research-bot", "--session", "ses_2", "-o", "x.json")
    ran.assert_failed("has no session 'ses_2'", "ses_1")


def test_unknown_snapshot_is_an_error(run, sample):
    ran = run("state", "export", "research-bot", "--snapshot", holdfast.ids.new_id(), "-o", "-")
    ran.assert_failed("has no snapshot")
    assert ran.out == ""


def test_missing_store_is_not_created(run, tmp_path):
    ran = run("state", "export", "a", "-o", "x.json", "--store", "sqlite:///no/where.db")
    ran.assert_failed("no store", "where.db", "--store")
    assert list(tmp_path.iterdir()) == []


def test_pipe_is_not_replaced_by_a_file(run, sample, tmp_path):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as reader:
        text = reader.submit(pipe.read_bytes)
        assert run("state", "export", "research-bot", "-o", "pipe.json").code == 0
        assert json.loads(text.result(10))["agent_id"] == "research-bot"
    assert pipe.is_fifo()
    assert [each.name for each in tmp_path.iterdir() if "tmp" in each.name] == []


def test_export_to_an_open_descriptor(sample, tmp_path):
    with (tmp_path / "x").open("wb") as file:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "holdfast",
                "state",
                "export",
                "research-bot",
                "-o",
                "/dev/fd/1",
            ],
            stdout=file,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "x").read_bytes())["agent_id"] == "research-bot"


def test_is_stream(tmp_path):
    for name in ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/proc/self/fd/1"):
        assert export.is_stream(name), name
    (tmp_path / "there.json").touch()
    for name in ("there.json", "new.json", str(tmp_path), "/dev/shm/new.json", "dev/stdout"):
        assert not export.is_stream(name), name


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is not writable")
def test_unwritable_folder_fails_before_the_export(run, tmp_path):
    run("state", "export", "missing", "-o", "/proc/x.json").assert_failed(
        "cannot write", "--output"
    )


@pytest.fixture
def blobs(run, tmp_path):
    """Return the contents of a session with a large text, and two attachments."""
    url = f"sqlite:///{tmp_path}/blobs.db"
    contents = {"text": "x" * 70_000, "key": b"mail ada@example.com", "image": b"\x89\xff" * 400}
    store = holdfast.open_state_store(url)
    session = holdfast.BlockingSession.open(store, agent_id="bot", session_id="ses_blobs")
    session.set("text", contents["text"])
    for name in ("key", "image"):
        session.set(name, session.attach(contents[name], name=name))
    session.save()
    return contents, ("--store", url)


def test_a_redacted_export_leaves_no_older_contents_in_its_folder(run, blobs, tmp_path):
    _, store = blobs
    to_folder = ("state", "export", "bot", "-o", "x.json", "--attachments", "folder", *store)
    redacted = (*to_folder, "--redact", "--redact-drop-binary")
    assert run(*to_folder).code == 0
    run(*redacted).assert_failed("x.json.blobs has 2 files of another export", "delete")
    shutil.rmtree(tmp_path / "x.json.blobs")
    for _ in range(2):
        assert run(*redacted).code == 0
    files = (tmp_path / "x.json.blobs").iterdir()
    assert not any(b"ada@example.com" in path.read_bytes() for path in files)


def test_attachments_are_embedded_or_in_a_folder_or_omitted(run, blobs, tmp_path):
    contents, store = blobs
    for mode, report in (
        ("embed", ", 3 blobs\n"),
        ("folder", ", 3 blobs\n"),
        ("omit", ", 3 blobs omitted\n"),
    ):
        name = f"{mode}.json"
        ran = run("state", "export", "bot", "-o", name, "--attachments", mode, *store)
        assert (ran.code, ran.out) == (0, "")
        assert ran.err.endswith(report)
        found = holdfast.read_document(tmp_path / name)
        assert len(found.blobs) == (0 if mode == "omit" else 3)
        if mode != "omit":
            assert found.state.values["text"] == contents["text"]
        assert (tmp_path / f"{name}.blobs").is_dir() == (mode == "folder")
        ran = run("state", "import", name, "--store", f"sqlite:///{tmp_path}/{mode}.db")
        assert ran.code == 0
        assert ("blobs: 3 omitted from the document" in ran.out) == (mode == "omit")
        imported = holdfast.BlockingSession.open(
            holdfast.open_state_store(f"sqlite:///{tmp_path}/{mode}.db"),
            agent_id="bot",
            session_id="ses_blobs",
        )
        if mode == "omit":
            with pytest.raises(holdfast.NotFoundError):
                imported.get("text")
        else:
            assert imported.get("text") == contents["text"]
            assert imported.read_attachment(imported.get("image")) == contents["image"]
        assert run("state", "show", name).code == 0
    ran = run("state", "export", "bot", "-o", "-", "--attachments", "folder", *store)
    assert ran.code == 2
    assert "a folder needs a file to be beside" in ran.err
    ran = run("state", "export", "bot", "-o", "-", "--attachments", "omit", *store)
    assert len(json.loads(ran.out)["blobs"]) == 3


def test_attachments_beyond_the_limit_go_to_a_folder(run, blobs, tmp_path, monkeypatch):
    _, store = blobs
    limits = DocumentLimits(max_embedded_bytes=1000)
    monkeypatch.setitem(SnapshotManager.export_session.__kwdefaults__, "limits", limits)
    ran = run("state", "export", "bot", "-o", "a.json", *store)
    ran.assert_failed("at most 1,000 bytes can be embedded", "--attachments folder")
    assert not (tmp_path / "a.json").exists()
    ran = run("state", "export", "bot", "-o", "a.json", "--attachments", "folder", *store)
    assert ran.code == 0


def test_a_redaction_warns_about_binary_attachments(run, blobs, tmp_path):
    _, store = blobs
    ran = run("state", "export", "bot", "-o", "a.json", "--redact", *store)
    assert "warning: 1 binary content not searched for secrets, such as image" in ran.err
    found = holdfast.read_document(tmp_path / "a.json")
    assert found.blobs[found.state.values["key"].digest] == b"mail [redacted: email]"
    ran = run("state", "export", "bot", "-o", "a.json", "--redact-drop-binary", *store)
    assert "warning" not in ran.err
    found = holdfast.read_document(tmp_path / "a.json")
    assert len(found.blobs) == 2
