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


def test_a_store_that_works_is_told_of(run, world, entries):
    before = entries()
    ran = run("doctor")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"holdfast {holdfast.__version__}, ")
    assert lines[1].startswith("extras: ")
    assert "sqlite:///state.db" in lines[2]
    assert [line.split(": ")[0] for line in lines[3:]] == ["✓ reading", "✓ writing", "✓ abilities"]
    assert "3 agents" in lines[3]
    assert entries() == before


def test_a_read_only_store_is_not_written(run, world):
    ran = run("doctor", "--store", "sqlite:///state.db?read_only=true")
    assert ran.code == 0
    assert "writing: read-only, as asked for" in ran.out


def test_an_interpreted_package_and_no_extras_are_said(run, monkeypatch):
    monkeypatch.setattr(holdfast, "compiled", False)
    monkeypatch.setattr(doctor, "EXTRAS", {"none": "there-is-no-such-package"})
    ran = run("doctor", "--store", "memory:")
    assert "interpreted (a C compiler makes it faster)" in ran.out
    assert "extras: none" in ran.out


def test_a_store_that_cannot_be_used_is_said_of_every_use(run, tmp_path):
    (tmp_path / "x.db").write_bytes(b"this is no database, whatever its name may say" * 100)
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
    ("store", "word"), [(Forgetful, "did not come back"), (Careless, "although told not to")]
)
def test_a_store_that_breaks_its_promise_is_found_out(run, monkeypatch, store, word):
    monkeypatch.setattr(doctor, "open_state_store", lambda _: store())
    ran = run("doctor")
    assert ran.code == 1
    assert word in ran.out


def test_a_store_that_cannot_be_opened_is_an_error(run):
    run("doctor", "--store", "what://ever").failed("unknown scheme")


def test_every_extra_is_looked_for_by_what_it_brings():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for extra, packages in project["optional-dependencies"].items():
        if extra != "all":
            assert any(package.startswith(EXTRAS[extra]) for package in packages), extra


@pytest.mark.parametrize("is_sound", [True, False])
def test_json_says_what_each_look_found(run, tmp_path, is_sound):
    if not is_sound:
        (tmp_path / "x.db").write_bytes(b"no database" * 500)
    ran = run("doctor", "--store", "sqlite:///x.db", "--format", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["ok"]) == ((0, True) if is_sound else (1, False))
    assert [look["name"] for look in found["looks"]] == ["reading", "writing", "abilities"]
    assert found["version"] == holdfast.__version__
