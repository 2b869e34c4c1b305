"""``holdfast doctor``."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

import holdfast
from holdfast.cli import doctor
from holdfast.cli.doctor import EXTRAS
from holdfast.stores.memory import MemoryStateStore


def test_working_store_passes(run, sample, entries):
    before = entries()
    ran = run("doctor")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"holdfast {holdfast.__version__}, ")
    assert lines[1].startswith("extras: ")
    assert "sqlite:///state.db" in lines[2]
    assert [line.split(": ")[0] for line in lines[3:]] == [
        "✓ reading",
        "✓ writing",
        "✓ capabilities",
    ]
    assert "3 agents" in lines[3]
    assert entries() == before


def test_read_only_store_is_not_written(run, sample):
    ran = run("doctor", "--store", "sqlite:///state.db?read_only=true")
    assert ran.code == 0
    assert "writing: read-only, as configured" in ran.out


def test_interpreted_package_without_extras(run, monkeypatch):
    monkeypatch.setattr(holdfast, "compiled", False)
    monkeypatch.setattr(doctor, "EXTRAS", {"none": "there-is-no-such-package"})
    ran = run("doctor", "--store", "memory:")
    assert "interpreted (a C compiler makes it faster)" in ran.out
    assert "extras: none" in ran.out


def test_unreachable_store_fails_every_check(run, tmp_path):
    (tmp_path / "x.db").write_bytes(b"this is not a database" * 100)
    ran = run("doctor", "--store", "sqlite:///x.db")
    assert (ran.code, ran.err) == (1, "")
    assert "✗ reading: " in ran.out
    assert "✗ writing: " in ran.out


class Forgetful(MemoryStateStore):
    """Loses what it is given."""

    async def _get(self, key):
        return None


class Careless(MemoryStateStore):
    """Does not look at conditions."""

    async def _put(self, put):
        return await super()._put(type(put)(put.key, put.value))


@pytest.mark.parametrize(
    ("store", "word"),
    [(Forgetful, "cannot be read back"), (Careless, "overwrote an existing entry")],
)
def test_incorrect_store_fails_the_write_check(run, monkeypatch, store, word):
    monkeypatch.setattr(doctor, "open_state_store", lambda _: store())
    ran = run("doctor")
    assert ran.code == 1
    assert word in ran.out


def test_store_that_cannot_be_opened_is_an_error(run):
    run("doctor", "--store", "what://ever").assert_failed("unknown scheme")


def test_extras_match_the_package_metadata():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for extra, packages in project["optional-dependencies"].items():
        if extra != "all":
            assert any(package.startswith(EXTRAS[extra]) for package in packages), extra


@pytest.mark.parametrize("is_sound", [True, False])
def test_doctor_json(run, tmp_path, is_sound):
    if not is_sound:
        (tmp_path / "x.db").write_bytes(b"not a database" * 500)
    ran = run("doctor", "--store", "sqlite:///x.db", "--format", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["ok"]) == ((0, True) if is_sound else (1, False))
    assert [check["name"] for check in found["checks"]] == ["reading", "writing", "capabilities"]
    assert found["version"] == holdfast.__version__
