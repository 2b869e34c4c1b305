"""Full disks, places without writing and clocks that jump, each once."""

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
    """What was made in the future is no matter of other tests."""
    monkeypatch.setattr(ids, "_clock", ids.Clock())


def problems_of(trial, *arguments, **named):
    """What a trial found wrong; skipped where this machine does not let it happen."""
    try:
        return trial(*arguments, **named)
    except Skipped as why:
        if os.environ.get("CI") and os.geteuid() == 0:
            raise
        pytest.skip(str(why))


@BACKENDS
def test_a_full_disk_is_one_clear_error_and_with_room_all_goes_on(backend, tmp_path):
    assert problems_of(disks.full_disk, tmp_path, backend) == []


@BACKENDS
def test_files_that_may_not_grow_are_like_a_full_disk(backend, tmp_path):
    assert problems_of(disks.limited_files, tmp_path, backend) == []


def test_a_store_opened_read_only_can_be_looked_at_and_not_changed(tmp_path):
    assert problems_of(read_only.wrapped, tmp_path, "sqlite") == []


@BACKENDS
def test_so_can_one_on_a_disk_that_is_mounted_read_only(backend, tmp_path):
    assert problems_of(read_only.read_only_disk, tmp_path, backend) == []


def test_and_so_can_one_by_a_role_that_may_only_read(tmp_path, postgres):
    assert problems_of(read_only.read_only_role, tmp_path, postgres) == []


def test_ids_are_in_order_whatever_the_clock_says(tmp_path):
    assert clocks.ids_in_order(tmp_path) == []


@pytest.mark.parametrize("sessions", [clocks.one_object, clocks.one_process])
def test_snapshots_are_in_the_order_of_their_making_and_the_last_are_kept(sessions, tmp_path):
    assert sessions(tmp_path) == []


def test_also_where_processes_have_clocks_that_disagree(tmp_path):
    assert clocks.two_processes(tmp_path, (-clocks.HOUR,)) == []


def test_a_thread_of_langgraph_stands_at_the_checkpoint_that_was_put_last(tmp_path):
    needs("langgraph.checkpoint.base")
    from trials.hardship import checkpoints

    assert checkpoints.each_by_its_own(tmp_path, (0.0, -clocks.HOUR, clocks.DECADE, 0.0)) == []
