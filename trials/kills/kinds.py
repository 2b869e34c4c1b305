"""The kinds of work, by name."""

from __future__ import annotations

from trials.kills.moving import Backup, Copy, Import
from trials.kills.tasks import Kind
from trials.kills.writing import Commit, Prune, Save

KINDS: dict[str, type[Kind]] = {
    kind.name: kind for kind in (Commit, Save, Prune, Import, Copy, Backup)
}
