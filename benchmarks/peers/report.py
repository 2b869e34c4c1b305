"""The figures of each system as text, and their growth as a plot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

from benchmarks.harness import figure
from benchmarks.peers.workload import Run, merge_fastest_turns, select_best

MILLI, MEGA = 1e3, 1e6
POINTS = 25
Runs = dict[str, list[Run]]


def collect_figures(runs: list[Run]) -> dict[str, float | None]:
    """Return the figures of one system, None for what it cannot do."""
    run, turns = select_best(runs), merge_fastest_turns(runs)
    first, last = turns.ends()
    return {
        "total s": run.total,
        "first ms": first * MILLI,
        "last ms": last * MILLI,
        "slowest ms": max(turns.turns) * MILLI,
        "MB open": run.sizes[-1][1] / MEGA,
        "MB closed": run.size / MEGA,
        "log MB": run.log / MEGA if run.log else None,
        "latest ms": run.latest and run.latest * MILLI,
        "middle ms": run.middle and run.middle * MILLI,
        "ids ms": run.listing and run.listing * MILLI,
        "ids": run.listed or None,
    }


def format_systems(results: Runs, notes: dict[str, str]) -> Iterator[list[str]]:
    """Return one line per system."""
    for number, (name, runs) in enumerate(results.items()):
        found = collect_figures(runs)
        if number == 0:
            yield ["system", *found, "note"]
        yield [name, *map(figure, found.values()), notes.get(name, "")]


def align_columns(lines: list[list[str]]) -> str:
    """Align columns: the first and the last to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if 0 < at < len(widths) - 1 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def compute_curves(runs: list[Run]) -> dict[str, list[tuple[float, float]]]:
    """Return bytes, and the time of a turn, over the turns, as running medians."""
    turns = merge_fastest_turns(runs).turns
    window = max(1, len(turns) // POINTS)
    starts = range(0, len(turns) - window + 1, window)
    return {
        "MB": [(turn, size / MEGA) for turn, size in select_best(runs).sizes],
        "ms": [
            (start + window / 2, median(turns[start : start + window]) * MILLI) for start in starts
        ],
    }


def results_to_json(results: Runs) -> dict[str, Any]:
    """Return the results as JSON data."""
    return {
        name: {**collect_figures(runs), "curves": compute_curves(runs)}
        for name, runs in results.items()
    }


def draw(results: Runs, colours: dict[str, str], path: Path) -> None:
    """Plot bytes and time of a turn as the conversation grows."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "holdfast"
    figure_, axes = plt.subplots(1, 2, figsize=(10, 4.4))
    for name, colour in colours.items():
        if name in results:
            for axis, points in zip(axes, compute_curves(results[name]).values(), strict=True):
                axis.plot(*zip(*points, strict=True), label=name, color=colour)
    axes[0].set(title="Bytes on the disk", xlabel="turns", ylabel="MB", yscale="log")
    axes[1].set(title="Saving a turn", xlabel="turns", ylabel="milliseconds", yscale="log")
    for axis in axes:
        axis.grid(visible=True, alpha=0.3)
    lines, names = axes[0].get_legend_handles_labels()
    figure_.legend(lines, names, loc="lower center", ncols=3, frameon=False, fontsize="small")
    figure_.tight_layout(rect=(0, 0.17, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure_.savefig(path, metadata={"Date": None})
    plt.close(figure_)
