"""Readers registered by a program or offered by an installed package, and how one is chosen."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest
import zstandard

import holdfast.importers
from holdfast.errors import HoldfastError, InvalidDocumentError, StateStoreError
from holdfast.importers.registry import BUILT_IN, load_built_in
from holdfast.importers.source import open_source
from holdfast.snapshots.session_snapshot import utc_now
from importers.graphs import check_imports


def import_diary(source):
    history = holdfast.importers.History("writer", source.stem, utc_now())
    for number, line in enumerate(source.path.read_text().splitlines()[1:]):
        history.append({"role": "user", "content": line}, utc_now(), f"line {number}")
    return history.document("diary")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "june.txt").write_text("DIARY\none\ntwo\n")
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "hi"}]')
    return tmp_path


@pytest.fixture
def register():
    names = []

    def call(name, recognises, read):
        holdfast.importers.register_reader(name, recognises, read)
        names.append(name)

    yield call
    for name in names:
        holdfast.importers.unregister_reader(name)


def is_diary(source):
    return source.start.startswith(b"DIARY")


def test_a_registered_reader_reads_its_format(folder, register):
    register("diary", is_diary, import_diary)
    (document,) = holdfast.importers.read("june.txt")
    assert (document.agent_id, document.session_id) == ("writer", "june")
    assert [message["content"] for message in document.state.messages] == ["one", "two"]
    check_imports(document)


def test_registered_readers_come_before_built_in_ones_but_after_holdfast_documents(
    folder, register
):
    register("greedy", lambda source: True, lambda source: [])
    assert holdfast.importers.read("chat.json") == []
    (document,) = holdfast.importers.read("chat.json", format="chat")
    (folder / "own.json").write_text(json.dumps(document.to_dict()))
    (again,) = holdfast.importers.read("own.json")
    assert again.digest == document.digest


def test_the_reader_registered_last_is_asked_first(folder, register):
    register("one", is_diary, import_diary)
    register("two", is_diary, lambda source: [])
    assert holdfast.importers.read("june.txt") == []
    assert len(holdfast.importers.read("june.txt", format="one")) == 1


def test_a_taken_name_or_a_wrong_argument_is_refused(register):
    register("diary", is_diary, import_diary)
    for name in ("diary", "chat", "holdfast"):
        with pytest.raises(ValueError, match="already"):
            holdfast.importers.register_reader(name, is_diary, import_diary)
    for wrong in (
        (5, is_diary, import_diary),
        ("", is_diary, import_diary),
        ("x", None, import_diary),
        ("x", is_diary, 5),
    ):
        with pytest.raises(TypeError):
            holdfast.importers.register_reader(*wrong)


def test_the_error_of_a_failing_reader_names_it(folder, register):
    register("broken", is_diary, lambda source: 1 / 0)
    with pytest.raises(InvalidDocumentError, match="reader 'broken' cannot read june.txt: ZeroDiv"):
        holdfast.importers.read("june.txt")
    register("nosy", lambda source: source.nothing, import_diary)
    with pytest.raises(InvalidDocumentError, match="reader 'nosy' cannot read june.txt: Attribute"):
        holdfast.importers.read("june.txt")


@pytest.mark.parametrize("given", [None, 5, "text", [5], {"a": 1}])
def test_a_reader_must_return_documents(folder, register, given):
    register("odd", is_diary, lambda source: given)
    with pytest.raises(InvalidDocumentError, match="reader 'odd' must return a Document"):
        holdfast.importers.read("june.txt")


def test_the_error_for_an_unknown_format_lists_the_known_ones(folder, register):
    register("poem", lambda source: False, import_diary)
    with pytest.raises(InvalidDocumentError) as caught:
        holdfast.importers.read("june.txt")
    for name in (*BUILT_IN, "poem"):
        assert name in str(caught.value)
    with pytest.raises(
        InvalidDocumentError, match="unknown format 'verse': must be one of holdfast"
    ):
        holdfast.importers.read("june.txt", format="verse")


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_file_in_another_format_than_given_is_refused(folder, name):
    (folder / "x.json").write_text('{"songs": []}')
    (folder / "empty").touch()
    for file in ("june.txt", "x.json", "empty"):
        with pytest.raises(InvalidDocumentError):
            holdfast.importers.read(file, format=name)


def test_a_thread_of_a_file_is_refused(folder):
    with pytest.raises(InvalidDocumentError, match="has no threads; omit --thread"):
        holdfast.importers.read("chat.json", thread="t1")


SAMPLES = sorted(
    path
    for path in (Path(__file__).parent / "samples").rglob("*")
    if path.suffix in (".json", ".jsonl", ".af")
)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_each_file_is_recognised_by_one_reader_before_the_chat_reader(path):
    with open_source(str(path)) as source:
        readers = [load_built_in(name) for name in BUILT_IN if name != "chat"]
        found = [each.name for each in readers if each.recognises(source)]
    assert found == [path.relative_to(Path(__file__).parent / "samples").parts[0]]


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_format_is_documented(name):
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "adapters" / "importing.md").read_text()
    (row,) = [
        line
        for line in page.partition("| format | detected by |")[2].split("\n\n")[0].splitlines()
        if line.startswith(f"| `{name}` |")
    ]
    assert row.count(" | ") == 3
    assert f"`{name}`" in (docs / "cli.md").read_text()


def test_a_source_that_cannot_be_opened_is_refused(folder):
    with pytest.raises(InvalidDocumentError, match="no such file: none.json"):
        holdfast.importers.read("none.json")
    with pytest.raises(InvalidDocumentError, match="is a directory"):
        holdfast.importers.read(".")
    with pytest.raises(
        InvalidDocumentError, match="not a file or a supported database URL"
    ) as caught:
        holdfast.importers.read("redis://ada:s3cret@host/0")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(StateStoreError):
        holdfast.importers.read("postgresql://[bad")


def test_a_pipe_is_read_once_for_all_readers(folder):
    os.mkfifo("pipe")
    text = (folder / "chat.json").read_bytes()
    writer = threading.Thread(target=lambda: Path("pipe").write_bytes(text))
    writer.start()
    (document,) = holdfast.importers.read("pipe")
    writer.join()
    assert document.state.messages == [{"role": "user", "content": "hi"}]


def test_a_path_below_a_file_is_refused(folder):
    with pytest.raises(InvalidDocumentError, match="cannot read chat.json/x: Not a directory"):
        holdfast.importers.read("chat.json/x")


# -------------------------------------------------------------------------- missing packages


NEEDS = {
    "zstandard": (lambda: holdfast.importers.read("packed.json"), "compression"),
    "psycopg": (lambda: holdfast.importers.read("postgresql://127.0.0.1:1/db"), "postgresql"),
}


@pytest.mark.parametrize("module", NEEDS)
def test_a_missing_package_is_reported_with_its_extra(folder, monkeypatch, module):
    (folder / "packed.json").write_bytes(zstandard.compress(b"[]"))
    use, extra = NEEDS[module]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(HoldfastError, match=rf"pip install 'holdfast\[{extra}\]'"):
        use()


# ------------------------------------------------------------------------------------- packages


@pytest.fixture
def package(folder, monkeypatch):
    """Installs a package that offers readers."""
    site = folder / "site"
    info = site / "diaries-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: diaries\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(site))

    def install(entries, code):
        (info / "entry_points.txt").write_text(f"[holdfast.readers]\n{entries}\n")
        (site / "diaries.py").write_text(code)

    yield install
    sys.modules.pop("diaries", None)


CODE = """
from holdfast.importers import History
from holdfast.snapshots.session_snapshot import utc_now

def recognises(source):
    return source.start.startswith(b"DIARY")

def read(source):
    return History("package", source.stem, utc_now()).document("diary")
"""


def test_a_reader_of_an_installed_package_reads_its_format(folder, package):
    package("diary = diaries", CODE)
    (document,) = holdfast.importers.read("june.txt")
    assert document.agent_id == "package"
    (document,) = holdfast.importers.read("june.txt", format="diary")
    assert document.agent_id == "package"


def test_a_package_that_fails_to_load_is_named_only_where_it_matters(folder, package):
    package("diary = diaries\nother = diaries:nothing", "import no_such_module")
    assert len(holdfast.importers.read("chat.json")) == 1
    with pytest.raises(
        InvalidDocumentError, match="cannot load the reader 'diary': ModuleNotFound"
    ):
        holdfast.importers.read("june.txt")
    with pytest.raises(InvalidDocumentError, match="cannot load the reader 'diary'"):
        holdfast.importers.read("june.txt", format="diary")


def test_a_package_cannot_replace_a_built_in_reader(folder, package):
    package("chat = diaries", CODE)
    (document,) = holdfast.importers.read("chat.json")
    assert document.agent_id == "imported"
