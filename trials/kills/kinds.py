"""The kinds of operation, by name."""

from __future__ import annotations

from trials.kills.commits import Commit, Prune, Save
from trials.kills.tasks import Kind
from trials.kills.transfers import Backup, Copy, Import

KINDS: dict[str, type[Kind]] = {
    kind.name: kind for kind in (Commit, Save, Prune, Import, Copy, Backup)
}
