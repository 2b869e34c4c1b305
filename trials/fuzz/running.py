"""A target under fire for some time: inputs that were damaged, and inputs that were made up."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.errors import HypothesisException

from trials.fuzz.trying import PROBLEM, Target, Tried, Watch, tried

TARGETS = {
    "value-bytes": ("values", "ValueBytes"),
    "value-json": ("values", "ValueJSON"),
    "documents": ("documents", "Documents"),
    "redaction": ("documents", "Redaction"),
    "stored": ("stored", "Stored"),
    "urls": ("urls", "URLs"),
    "rest": ("rest", "REST"),
    "foreign-files": ("foreign", "ForeignFiles"),
    "foreign-databases": ("foreign", "ForeignDatabases"),
    "foreign-values": ("foreign", "ForeignValues"),
    "commands": ("commands", "Commands"),
}
"""Where each target is: most import much, and are imported when they are tried."""
AT_ONCE = 50
SHRINKS = 300
"""So many inputs more are tried to make a finding of Hypothesis small."""


@dataclass
class Run:
    """What was tried of one target so far, and each problem once."""

    target: Target
    watch: Watch
    kept: Path
    """Where inputs are kept that were a problem."""
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kept.mkdir(parents=True, exist_ok=True)
        self._made_up = self.target.made_up()
        self._now = os.open(now_of(self.kept), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def examine(self, data: bytes) -> Tried:
        """Try an input; it is written down before, as the process may not survive it."""
        note = len(data).to_bytes(8, "big") + self.target.name.encode().ljust(32) + data
        os.pwrite(self._now, note, 0)
        found = tried(self.target, data, self.watch)
        self.counts[found.outcome] += 1
        return found

    def keep(self, data: bytes, found: Tried) -> None:
        """Keep an input that was a problem of a new kind."""
        if found.place not in self.problems:
            path = keep(self.kept, self.target.name, data, self.seed, found.problem)
            self.problems[found.place] = f"{self.target.name}: {found.problem} ({path})"

    def warm_up(self) -> None:
        """Real inputs: what is imported late is imported now, and all of them are accepted."""
        for data in self.target.corpus:
            try:
                self.target.attempt(data)
            except Exception as error:  # noqa: BLE001 - told below, with the input
                self.keep(data, Tried(PROBLEM, f"real, and refused: {error!r}", str(error)))
        for data in self.target.corpus:
            found = self.examine(data)
            if found.outcome == PROBLEM:
                self.keep(data, found)

    def damage(self, rng: Random, count: int) -> None:
        """Try real inputs with damage."""
        for _ in range(count):
            data = self.target.mutated(rng)
            found = self.examine(data)
            if found.outcome == PROBLEM:
                self.keep(data, found)

    def make_up(self, seed: int, count: int) -> None:
        """Try inputs that Hypothesis makes up; a problem of a new kind is made small."""
        failing: dict[bytes, Tried] = {}
        left = SHRINKS

        @seeded(seed)
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
        )
        @given(self._made_up)
        def examine(data: bytes) -> None:
            nonlocal left
            if data not in failing:
                if failing and left <= 0:
                    return
                left -= bool(failing)
                found = self.examine(data)
                if found.outcome != PROBLEM or found.place in self.problems:
                    return
                failing[data] = found
            raise Found(data)

        try:
            examine()
        except Found as found:
            self.keep(found.data, failing[found.data])
        except HypothesisException:
            # It could not be had twice: the smallest is kept as it was seen.
            if not failing:
                raise
            smallest = min(failing, key=len)
            self.keep(smallest, failing[smallest])

    def close(self) -> None:
        """Give back what the target holds."""
        self.target.close()
        os.close(self._now)
        now_of(self.kept).unlink(missing_ok=True)


def target_of(name: str, folder: Path) -> Target:
    """A target that keeps its files in a folder."""
    module, kind = TARGETS[name]
    found: Target = getattr(import_module(f"trials.fuzz.{module}"), kind)(folder)
    return found


class Found(Exception):
    """An input that is a problem, for Hypothesis."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


def run(
    name: str, watch: Watch, kept: Path, seed: int, *, seconds: float | None, inputs: int
) -> Run:
    """Try a target for some time, or without one so many inputs."""
    work = Run(target_of(name, watch.folder), watch, kept, seed)
    rng = Random(f"{seed} {name}")
    end = None if seconds is None else time.monotonic() + seconds
    try:
        work.warm_up()
        first = work.counts.total()
        while work.counts.total() - first < inputs if end is None else time.monotonic() < end:
            step = AT_ONCE if end is not None else max(1, min(AT_ONCE, inputs // 2))
            work.damage(rng, step)
            work.make_up(rng.randrange(1 << 32), step)
    finally:
        work.close()
    return work


# ----------------------------------------------------------------------------------- inputs kept


def now_of(kept: Path) -> Path:
    """The file of the input that is being tried."""
    return kept / "now"


def read_now(kept: Path) -> tuple[str, bytes] | None:
    """Which input a process that is gone was trying: the target's name and the input."""
    try:
        note = now_of(kept).read_bytes()
    except FileNotFoundError:
        return None
    size = int.from_bytes(note[:8], "big")
    return (note[8:40].decode().strip(), note[40 : 40 + size]) if note else None


def keep(kept: Path, target: str, data: bytes, seed: int, problem: str) -> Path:
    """Write an input to a file of its own, from which it can be tried again."""
    digest = hashlib.sha256(data).hexdigest()[:12]
    path = kept / f"{target}-{digest}.json"
    tree = {
        "target": target,
        "seed": seed,
        "problem": problem,
        "data": base64.b64encode(data).decode(),
    }
    path.write_text(json.dumps(tree, indent=1) + "\n")
    return path


def replay(path: Path, watch: Watch) -> Tried:
    """Try an input again that was kept in a file."""
    tree = json.loads(path.read_text())
    data = base64.b64decode(tree["data"])
    target = target_of(tree["target"], watch.folder)
    try:
        for real in target.corpus:
            target.attempt(real)
        return tried(target, data, watch)
    finally:
        target.close()
