"""Full disks, read-only stores and jumping clocks, each once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from holdfast import ids
from servers.process import needs

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from trials.hardship import Skipped, clocks, disks, read_only

BACKENDS = pytest.mark.parametrize("backend", ["sqlite", "files"])


@pytest.fixture(autouse=True)
def own_clock(monkeypatch):
    """Keep ids of the future out of other tests."""
    monkeypatch.setattr(ids, "_clock", ids.Clock())


def run_trial(trial, *arguments, **named):
    """Return what a trial finds wrong; skip the test if the machine does not permit it."""
    try:
        return trial(*arguments, **named)
    except Skipped as why:
        if os.environ.get("CI") and os.geteuid() == 0:
            raise
        pytest.skip(str(why))


@BACKENDS
def test_a_full_disk_is_one_clear_error_and_work_continues_with_space(backend, tmp_path):
    assert run_trial(disks.full_disk, tmp_path, backend) == []


@BACKENDS
def test_a_file_size_limit_is_like_a_full_disk(backend, tmp_path):
    assert run_trial(disks.limited_files, tmp_path, backend) == []


def test_a_store_opened_read_only_can_be_read_but_not_changed(tmp_path):
    assert run_trial(read_only.read_only_option, tmp_path, "sqlite") == []


@BACKENDS
def test_a_store_on_a_read_only_disk_can_be_read_but_not_changed(backend, tmp_path):
    assert run_trial(read_only.read_only_disk, tmp_path, backend) == []


def test_a_store_with_a_read_only_role_can_be_read_but_not_changed(tmp_path, postgres):
    assert run_trial(read_only.read_only_role, tmp_path, postgres) == []


def test_ids_are_ordered_under_a_jumping_clock(tmp_path):
    assert clocks.ids_in_order(tmp_path) == []


@pytest.mark.parametrize("sessions", [clocks.run_one_object, clocks.run_one_process])
def test_snapshots_are_ordered_and_the_last_are_kept_under_a_jumping_clock(sessions, tmp_path):
    assert sessions(tmp_path) == []


def test_snapshots_are_ordered_when_clocks_of_processes_disagree(tmp_path):
    assert clocks.run_two_processes(tmp_path, (-clocks.HOUR,)) == []


def test_the_last_langgraph_checkpoint_is_current_under_a_jumping_clock(tmp_path):
    needs("langgraph.checkpoint.base")
    from trials.hardship import checkpoints

    assert checkpoints.run_checkpoints(tmp_path, (0.0, -clocks.HOUR, clocks.DECADE, 0.0)) == []
