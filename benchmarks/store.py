"""Compare the in-memory store with swarmstate and `copy.deepcopy`.

Every round gives each contestant the same keys in random order; the best round counts, and only
the ratio is meaningful. `--smoke` runs on a small scale, `--plot` plots snapshot and diff by size.
Run: make bench-store
"""

from __future__ import annotations

import argparse
import copy
import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import swarmstate

import holdfast
from benchmarks.harness import (
    ROOT,
    Row,
    figure,
    format_table,
    import_interpreted,
    keep,
    measure_clock,
    progress,
    run_in_new_process,
    shuffle,
    time_call,
)

PEER, OURS, TWIN = "swarmstate", "holdfast", "interpreted"
MICRO = 1e6

# Targets: the peer's time over ours, at 1e3, 1e5 and 1e6 entries.
TARGETS: dict[str, tuple[float, float, float]] = {
    "set": (2, 2, 1.5),
    "get": (1.5, 1.5, 1.5),
    "set_many, an item": (1.5, 1.5, 1.5),
    "get_many, an item": (1.5, 1.5, 1.5),
    "snapshot, dropped": (1.2, 1.2, 1.2),
    "snapshot, kept": (1.2, 1.2, 1.2),
    "snapshot, dropped, and one set": (1.2, 1.2, 1.2),
    "restore, 100 dirty keys": (1.5, 1.5, 1.5),
    "first set after a kept snapshot": (2, 2, 2),
    "diff, 1 changed": (10, 2000, 10_000),
    "diff, 100 changed": (0, 0, 500),
    "diff, 10000 changed": (0, 0, 20),
}
TARGETS_256 = {
    **TARGETS,
    "diff, 1 changed": (0, 1.5, 30),
    "diff, 100 changed": (0, 10, 200),
    "diff, 10000 changed": (0, 0, 0),
}


def make_value(turn: int) -> dict[str, Any]:
    """Return the value of an entry, which differs per turn."""
    step = 1000 + turn if turn else 3
    return {"step": step, "name": "onboarding", "done": False, "items": [1, 2, 3]}


@dataclass(slots=True)
class Arena:
    """The contestants, filled with the same entries."""

    size: int
    namespaces: int
    pairs: list[tuple[str, str]]
    stores: dict[str, Any]
    rng: random.Random

    def sample(self, count: int) -> list[tuple[str, str]]:
        """Return random distinct entries."""
        return self.rng.sample(self.pairs, min(count, self.size))


def fill_stores(size: int, namespaces: int, makers: dict[str, Callable[[], Any]]) -> Arena:
    """Fill a store of each contestant."""
    pairs = [(f"namespace-{at % namespaces}", f"key-{at}") for at in range(size)]
    stores = {}
    for name, make in makers.items():
        progress(f"filling {name} with {size:,} entries in {namespaces} namespaces")
        store = stores[name] = make()
        first = make_value(0)
        for namespace, key in pairs:
            store.set(namespace, key, first)
    gc.collect()
    return Arena(size, namespaces, pairs, stores, random.Random(size))


def set_all(store: Any, pairs: list[tuple[str, str]], new: object) -> None:
    """Set each entry."""
    for namespace, key in pairs:
        store.set(namespace, key, new)


def get_all(store: Any, pairs: list[tuple[str, str]]) -> None:
    """Get each entry."""
    for namespace, key in pairs:
        store.get(namespace, key)


def drop_snapshots(store: Any) -> None:
    """Take and drop 1,000 snapshots."""
    for _ in range(1000):
        store.snapshot()


def keep_snapshots(store: Any) -> list[Any]:
    """Take and keep 1,000 snapshots.

    This used to be slower: 1,000 objects start the garbage collector, which visits every node that
    was written since it last ran. It must not be measured by dropped snapshots alone.
    """
    return [store.snapshot() for _ in range(1000)]


def drop_and_set(store: Any, pairs: list[tuple[str, str]], new: object) -> None:
    """Take and drop a snapshot before each write."""
    for namespace, key in pairs:
        store.snapshot()
        store.set(namespace, key, new)


def measure(
    place: Arena, rounds: int, targets: dict[str, tuple[float, float, float]], column: int | None
) -> list[Row]:
    """Measure every operation."""
    suffix = f"{place.size:,} in {place.namespaces}"
    rows: dict[str, Row] = {}

    def row(question: str, unit: str = "µs") -> Row:
        if question not in rows:
            target = targets[question][column] if column is not None else 0
            rows[question] = Row(f"{question}, {suffix}", unit, target=target or None)
        return rows[question]

    read_clock = measure_clock()
    step = 0
    # First what keeps no snapshot, so that no write has to copy anything.
    for turn in range(rounds):
        progress(f"{suffix}: reads and writes, round {turn + 1} of {rounds}")
        sample = place.sample(5000)
        for name in shuffle(list(place.stores), place.rng):
            store, new = place.stores[name], make_value(step + 1)

            row("set").offer(name, time_call(set_all, store, sample, new) / len(sample) * MICRO)
            row("get").offer(name, time_call(get_all, store, sample) / len(sample) * MICRO)
            items = [(namespace, key, make_value(step + 2)) for namespace, key in sample]
            spent = time_call(store.set_many, items)
            row("set_many, an item").offer(name, spent / len(sample) * MICRO)
            spent = time_call(store.get_many, sample)
            row("get_many, an item").offer(name, spent / len(sample) * MICRO)
            spent = time_call(drop_snapshots, store)
            row("snapshot, dropped").offer(name, spent / 1000 * MICRO)
            spent = time_call(drop_and_set, store, sample[:1000], make_value(step + 3))
            row("snapshot, dropped, and one set").offer(name, spent / len(sample[:1000]) * MICRO)
        step += 3
    for turn in range(rounds):
        progress(f"{suffix}: snapshots, round {turn + 1} of {rounds}")
        step += 1
        sample = place.sample(200)
        for name in shuffle(list(place.stores), place.rng):
            store, new = place.stores[name], make_value(step)
            row("snapshot, kept").offer(name, time_call(keep_snapshots, store) / 1000 * MICRO)
            spent = 0.0
            for namespace, key in sample:
                held = store.snapshot()
                start = time.perf_counter()
                store.set(namespace, key, new)
                spent += time.perf_counter() - start - read_clock
                del held
            row("first set after a kept snapshot").offer(name, spent / len(sample) * MICRO)
            base = store.snapshot()
            for namespace, key in sample[:100]:
                store.set(namespace, key, make_value(step + 10_000))
            row("restore, 100 dirty keys").offer(name, time_call(store.restore, base) * MICRO)
    for changed in (1, 100, 10_000):
        if changed >= place.size:
            continue
        for turn in range(max(3, rounds // 5)):
            progress(f"{suffix}: diff of {changed:,}, round {turn + 1}")
            step += 1
            sample = place.sample(changed)
            for name in shuffle(list(place.stores), place.rng):
                store = place.stores[name]
                base = store.snapshot()
                for namespace, key in sample:
                    store.set(namespace, key, make_value(step))
                later = store.snapshot()
                assert len(later.diff(base)["changed"]) == changed
                spent = time_call(later.diff, base)
                row(f"diff, {changed} changed").offer(name, spent * MICRO)
    return list(rows.values())


MEMORY = """
import gc, random, sys
kind, size, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if kind == "swarmstate":
    import swarmstate
    store = swarmstate.Store()
else:
    if kind == "interpreted":
        sys.path.insert(0, sys.argv[4])
        import holdfast_interpreted as holdfast
    else:
        import holdfast
    store = holdfast.Store(max_history=0)

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def make_value(step):
    return {"step": step, "name": "onboarding", "done": False, "items": [1, 2, 3]}

before = resident()
for at in range(size):
    store.set("namespace", f"key-{at}", make_value(3))
if what == "entry":
    print((resident() - before) / size)
else:
    rng, held = random.Random(1), []
    before = resident()
    for at in range(5000):
        held.append(store.snapshot())
        store.set("namespace", f"key-{rng.randrange(size)}", make_value(at % 100))
    print((resident() - before) / 5000)
"""


def measure_memory(size: int, twin_folder: str) -> list[Row]:
    """Return the bytes per entry, and per write after a snapshot that is kept."""
    rows = []
    for what, question in (
        ("entry", f"memory of an entry, {size:,}"),
        ("write", f"memory of a write after a snapshot, {size:,}"),
    ):
        row = Row(question, "bytes", target=1)
        for name in (PEER, OURS, TWIN):
            progress(f"{question}: {name}")
            row.offer(name, run_in_new_process(MEMORY, name, str(size), what, twin_folder))
        rows.append(row)
    return rows


def measure_growth(
    sizes: list[int], makers: dict[str, Callable[[], Any]]
) -> dict[str, dict[str, list[float]]]:
    """Measure a snapshot, and the diff of one changed key, over the size."""
    curves: dict[str, dict[str, list[float]]] = {"snapshot": {}, "diff": {}}
    for size in sizes:
        place = fill_stores(size, 1, makers)
        rows = {
            row.question.split(",")[0]: row for row in reversed(measure(place, 5, TARGETS, None))
        }
        for operation, lines in curves.items():
            for name in makers:
                lines.setdefault(name, []).append(rows[operation].times[name])
        data = {pair: make_value(0) for pair in place.pairs}
        spent = min(time_call(copy.deepcopy, data) for _ in range(3))
        curves["snapshot"].setdefault("copy.deepcopy", []).append(spent * MICRO)
    return curves


def draw(sizes: list[int], curves: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Draw the plot for the docs."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "holdfast"
    figure_, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    colours = {OURS: "#1a7f64", PEER: "#c2571a", "copy.deepcopy": "#777777"}
    for axis, operation, title in (
        (axes[0], "snapshot", "Taking a snapshot"),
        (axes[1], "diff", "Diff after 1 change"),
    ):
        for name, points in curves[operation].items():
            axis.plot(sizes, points, marker="o", label=name, color=colours.get(name))
        axis.set(title=title, xlabel="entries in the store", xscale="log", yscale="log")
        axis.grid(visible=True, alpha=0.3)
        axis.legend(frameon=False)
    axes[0].set_ylabel("microseconds")
    figure_.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure_.savefig(path, metadata={"Date": None})
    plt.close(figure_)


def main() -> None:
    """Measure, print, write the results, and plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small run that writes no results")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs/images/store-cost.svg")
    options = parser.parse_args()
    twin = import_interpreted()
    twin_folder = str(Path(str(twin.__file__)).parent.parent)
    makers: dict[str, Callable[[], Any]] = {
        PEER: swarmstate.Store,
        OURS: lambda: holdfast.Store(max_history=0),
        TWIN: lambda: twin.Store(max_history=0),
    }
    print("holdfast is", "compiled" if holdfast.compiled else "interpreted")
    sizes = [100, 300] if options.smoke else [1000, 100_000, 1_000_000]
    rows: list[Row] = []
    for column, size in enumerate(sizes):
        rounds = 2 if options.smoke else (100, 40, 20)[column]
        for namespaces, targets in ((1, TARGETS), (256, TARGETS_256)):
            rows += measure(fill_stores(size, namespaces, makers), rounds, targets, column)
    rows += measure_memory(2000 if options.smoke else 100_000, twin_folder)
    print(format_table("operation, entries in namespaces", rows, PEER, [OURS, TWIN]))
    steps = [100, 300] if options.smoke else [10**power for power in (2, 3, 4, 5, 6)]
    without_twin = {name: make for name, make in makers.items() if name != TWIN}
    curves = measure_growth(steps, without_twin)
    progress("")
    for name, points in curves["snapshot"].items():
        print(f"snapshot with {name}, µs at {steps}: {', '.join(map(figure, points))}")
    if not options.smoke:
        print(f"written to {keep('store', rows, sizes=steps, curves=curves)}")
        draw(steps, curves, options.plot)


if __name__ == "__main__":
    main()
