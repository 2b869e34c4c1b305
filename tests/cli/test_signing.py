"""Signing on the command line: ``keys``, ``--sign``, ``--trust`` and ``--require-signature``."""

from __future__ import annotations

import errno
import json
import resource
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import keys
from holdfast.documents.signing import (
    PublicKey,
    Signature,
    SigningKey,
    compute_signed_message,
    encode_signature,
    load_trusted_keys,
)
from holdfast.importers import register_reader, unregister_reader

NEW = ["--store", "sqlite:///new.db"]


@pytest.fixture(autouse=True)
def clear_key_variables(monkeypatch):
    for name in ("HOLDFAST_TRUSTED_KEYS", "HOLDFAST_SIGNING_PASSPHRASE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def signed(run, sample, tmp_path):
    """A session exported and signed with a new key; the id of the key."""
    assert run("keys", "new", "release").code == 0
    ran = run("state", "export", "research-bot", "-o", "signed.json", "--sign", "release.key")
    key_id = PublicKey.from_file(tmp_path / "release.pub").key_id
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.strip().endswith(f"signed by {key_id}")
    return key_id


def test_new_private_key_is_readable_only_by_its_owner(run, tmp_path):
    ran = run("keys", "new", "release")
    assert (ran.code, ran.err) == (0, "")
    private, public = tmp_path / "release.key", tmp_path / "release.pub"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    key = SigningKey.from_file(private)
    assert PublicKey.from_file(public) == key.public
    assert ran.out.splitlines()[-1] == key.key_id
    assert "secret (not encrypted)" in ran.out
    shown = run("keys", "show", "release.pub", "release.key")
    assert shown.out.count(key.key_id) == 2
    listed = json.loads(run("keys", "show", ".", "--format", "json").out)
    assert listed == [{"name": "release", "key_id": key.key_id}]


def test_existing_key_is_not_replaced(run, tmp_path):
    for name in ("a.key", "b.pub"):
        (tmp_path / name).write_text("mine")
        run("keys", "new", name[0]).assert_failed(name, "already exists")
        assert (tmp_path / name).read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.key", "b.pub"]
    run("keys", "new", "nowhere/c").assert_failed("nowhere/c.key", "No such file")
    (tmp_path / "d.pub").symlink_to("nowhere")
    run("keys", "new", "d.key").assert_failed("d.pub", "already exists")
    for name in (".key", "nowhere/", ""):
        run("keys", "new", name).assert_usage_error("invalid name")


def test_failed_second_file_removes_the_first(run, monkeypatch, tmp_path):
    def full(path, data, mode, write=keys.write_key_file):
        if path.suffix == ".pub":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, data, mode)

    monkeypatch.setattr(keys, "write_key_file", full)
    run("keys", "new", "release").assert_failed("release.pub: No space left on device")
    assert list(tmp_path.iterdir()) == []
    run("keys", "show", "none.pub").assert_failed("none.pub", "No such file")
    (tmp_path / "odd.pub").write_text("odd")
    run("keys", "show", "odd.pub").assert_failed("odd.pub is not a key in PEM")


def test_failed_write_leaves_no_file(run, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        ran = run("keys", "new", "release")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    ran.assert_failed("release.key: File too large")
    assert list(tmp_path.iterdir()) == []
    assert run("keys", "new", "release").code == 0


def test_passphrase_is_bytes_and_not_in_errors(run, sample, monkeypatch):
    monkeypatch.setenv("HOLDFAST_SIGNING_PASSPHRASE", "caf\udce9")
    assert run("keys", "new", "latin").code == 0
    assert run("state", "export", "ann", "-o", "a.json", "--sign", "latin.key").code == 0
    monkeypatch.setenv("HOLDFAST_SIGNING_PASSPHRASE", "q" * 1024)
    ran = run("keys", "new", "long")
    ran.assert_failed("more than 1,023 bytes", "$HOLDFAST_SIGNING_PASSPHRASE")
    assert "qq" not in ran.err
    assert not Path("long.key").exists()


def test_empty_trust_path_is_wrong_usage(run, signed, monkeypatch, tmp_path):
    for command in (["state", "import", "signed.json", *NEW], ["state", "show", "signed.json"]):
        run(*command, "--trust", "").assert_usage_error("--trust", "must not be empty")
        run(*command, "--trust", "release.pub", "--trust", "").assert_usage_error(
            "must not be empty"
        )
    run("serve", "--trust", "").assert_usage_error("must not be empty")
    run("state", "export", "ann", "-o", "a.json", "--sign", "").assert_usage_error(
        "--sign", "must not be empty"
    )
    run("keys", "show", "").assert_failed("the path of a key is empty")
    for value in ("", ":", "::"):
        monkeypatch.setenv("HOLDFAST_TRUSTED_KEYS", value)
        run("state", "show", "signed.json", "--require-signature").assert_usage_error(
            "no trusted key"
        )
        assert "not verified" in run("state", "show", "signed.json").out
    assert not (tmp_path / "new.db").exists()


def test_passphrase_from_the_environment(run, sample, monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_SIGNING_PASSPHRASE", "open sesame")
    assert "encrypted with $HOLDFAST_SIGNING_PASSPHRASE" in run("keys", "new", "locked").out
    assert b"ENCRYPTED" in (tmp_path / "locked.key").read_bytes()
    export = ["state", "export", "research-bot", "-o", "a.json", "--sign", "locked.key"]
    assert run(*export).code == 0
    assert run("state", "show", "a.json", "--trust", "locked.pub").code == 0
    monkeypatch.setenv("HOLDFAST_SIGNING_PASSPHRASE", "open barley")
    ran = run(*export)
    ran.assert_failed("locked.key is not a valid key", "the passphrase is wrong")
    assert "barley" not in ran.err
    monkeypatch.delenv("HOLDFAST_SIGNING_PASSPHRASE")
    run(*export).assert_failed("is encrypted", "$HOLDFAST_SIGNING_PASSPHRASE")


def test_openssl_key_can_sign(run, sample, tmp_path):
    for command in (
        "openssl genpkey -algorithm ed25519 -out own.key",
        "openssl pkey -in own.key -pubout -out own.pub",
    ):
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    export = ["state", "export", "research-bot", "--sign", "own.key", "-o"]
    assert run(*export, "own.json.gz").code == 0
    assert run("state", "import", "own.json.gz", *NEW, "--trust", "own.pub").code == 0
    run(*export, "x.json", "--sign", "own.pub").assert_failed("own.pub is a public key")
    run(*export, "x.json", "--sign", "none.key").assert_failed("cannot read key file none.key")
    assert not (tmp_path / "x.json").exists()


def test_show_signers(run, signed, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "160")
    unchecked = f"signed_by           {signed}: not verified, no trusted keys"
    assert unchecked in run("state", "show", "signed.json").out.splitlines()
    checked = f"signed_by           {signed} (release)"
    ran = run("state", "show", "signed.json", "--trust", "release.pub")
    assert checked in ran.out.splitlines()
    monkeypatch.setenv("HOLDFAST_TRUSTED_KEYS", "release.pub")
    assert checked in run("state", "show", "signed.json").out.splitlines()
    assert run("state", "show", "signed.json", "--require-signature").code == 0
    assert "signed_by" not in run("state", "show", "ses_1").out
    assert run("keys", "new", "other").code == 0
    monkeypatch.setenv("HOLDFAST_TRUSTED_KEYS", "other.pub")
    ran = run("state", "show", "signed.json")
    assert (ran.code, "not by a trusted key: " in ran.out) == (0, True)
    tree = json.loads((tmp_path / "signed.json").read_bytes())
    (tmp_path / "odd.json").write_text(json.dumps({**tree, "signatures": "\x1b[2J"}))
    ran = run("state", "show", "odd.json")
    assert "not by a trusted key: malformed signatures" in ran.out
    assert "\x1b" not in ran.out
    for unsigned in ([], None):
        (tmp_path / "odd.json").write_text(json.dumps({**tree, "signatures": unsigned}))
        assert "signed_by" not in run("state", "show", "odd.json").out
    run("state", "show", "ses_1", "--require-signature").assert_failed(
        "ses_1 is not a file", "only files are signed"
    )


def test_import_a_document_signed_by_a_trusted_key(run, signed, monkeypatch):
    ran = run("state", "import", "signed.json", *NEW, "--trust", "release.pub")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == f"signed by {signed} (release)"
    monkeypatch.setenv("HOLDFAST_TRUSTED_KEYS", ":release.pub")
    options = ["--require-signature", "--agent", "other", "--format", "json"]
    result = json.loads(run("state", "import", "signed.json", *NEW, *options).out)
    assert (result["agent_id"], result["signed_by"]) == ("other", [signed])
    plain = json.loads(run("state", "import", "signed.json", *NEW, "--format", "json").out)
    assert plain["signed_by"] == []


def test_document_without_a_trusted_signature_is_refused(run, signed, tmp_path):
    assert run("keys", "new", "other").code == 0
    assert run("state", "export", "research-bot", "-o", "plain.json").code == 0
    tree = json.loads((tmp_path / "signed.json").read_bytes())
    (tmp_path / "edited.json").write_text(json.dumps({**tree, "tags": {"x": "y"}}))
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "hi"}]')
    text = (tmp_path / "signed.json").read_text()
    (tmp_path / "twice.json").write_text(text.replace("{", '{"agent_id": "admin",', 1))
    trust = [*NEW, "--trust", "release.pub"]
    for file, words in (
        ("plain.json", "plain.json: the document is not signed"),
        ("edited.json", "does not match the document"),
        ("chat.json", "chat.json: the document is not signed"),
        ("twice.json", "the name 'agent_id' twice"),
    ):
        for more in ([], ["--allow-modified"], ["--dry-run"]):
            run("state", "import", file, *trust, *more).assert_failed(words)
    run("state", "import", "signed.json", *trust, "--as", "chat").assert_failed(
        "format chat has no signature"
    )
    run("state", "import", "signed.json", *NEW, "--trust", "other.pub").assert_failed(
        signed, "trust that key"
    )
    run("state", "import", "signed.json", *NEW, "--trust", "release.key").assert_failed(
        "private key"
    )
    run("state", "show", "edited.json", "--trust", "release.pub").assert_failed(
        "edited.json: the sig"
    )
    run("state", "import", "signed.json", *NEW, "--require-signature").assert_usage_error(
        "no trusted key", "$HOLDFAST_TRUSTED_KEYS"
    )
    assert not (tmp_path / "new.db").exists()


def test_other_formats_are_refused_before_they_are_read(run, signed, tmp_path):
    looked = []
    chat = "\n".join(json.dumps({"role": "user", "content": text}) for text in "ab")
    (tmp_path / "chat.jsonl").write_text(chat)
    (tmp_path / "threads.sqlite").write_bytes(b"SQLite format 3\x00" + bytes(500))
    key = SigningKey.from_file(tmp_path / "release.key")
    message = compute_signed_message({"songs": []})
    entry = encode_signature(Signature(key.key_id, key.sign(message)))
    (tmp_path / "songs.json").write_text(json.dumps({"songs": [], "signatures": [entry]}))
    register_reader("nosy", looked.append, looked.append)
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            url = f"postgresql://ada:s3cret@127.0.0.1:{server.getsockname()[1]}/db"
            for name in ("chat.jsonl", "threads.sqlite", "songs.json", url):
                ran = run("state", "import", name, *NEW, "--trust", "release.pub")
                ran.assert_failed("only Holdfast documents have one")
                assert "s3cret" not in ran.err
            with pytest.raises(BlockingIOError):
                server.accept()
    finally:
        unregister_reader("nosy")
    assert looked == []
    assert not (tmp_path / "new.db").exists()


def test_server_loads_trusted_keys_before_it_listens(run, signed, monkeypatch, tmp_path):
    served = []
    monkeypatch.setattr("holdfast.server.run.serve", lambda *_, **options: served.append(options))
    assert run("serve", "--trust", "release.pub").code == 0
    assert run("serve").code == 0
    assert [options["trusted"] for options in served] == [load_trusted_keys(tmp_path), None]
    run("serve", "--require-signature").assert_usage_error("no trusted key")
    run("serve", "--trust", "release.key").assert_failed("release.key is a private key")
    assert len(served) == 2


def test_broken_server_is_not_reported_as_missing(run, signed, monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "holdfast.server.run", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "uvicorn.py").write_text("raise ImportError('its library is of another machine')")
    for name in [name for name in sys.modules if name.partition(".")[0] == "uvicorn"]:
        monkeypatch.delitem(sys.modules, name)
    run("serve").assert_failed("the server cannot be loaded: its library is of another machine")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    run("serve").assert_failed("uvicorn is not installed", "pip install 'holdfast[server]'")
