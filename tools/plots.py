"""Pictures of the benchmarks' results, for docs/benchmarks.md.

``python -m tools.plots`` draws them anew from `benchmarks/results/`; a test says when that is due.
They are small SVGs that can be read on a light and on a dark page, and need no font from elsewhere.
Bars begin at 0. Where values lie too far apart for bars, each is a dot on a logarithmic scale.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS, IMAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "images"
OURS = "holdfast"
WIDTH, LABEL, ROW, TOP = 376, 128, 24, 38
ROOM = WIDTH - LABEL - 74  # what a bar may take, with its value behind it
STYLE = """
    text { fill: #00433b; } .small { font-size: 12px; fill: #3f5f5b; } .end { text-anchor: end; }
    .ours { fill: #00796b; } .peer { fill: #d9822b; }
    .line { stroke: #7aa6a0; } .scale { stroke: #7aa6a0; stroke-opacity: 0.4; }
    @media (prefers-color-scheme: dark) {
      text { fill: #d7efec; } .small { fill: #a5c9c5; }
      .ours { fill: #4db6ac; } .peer { fill: #e0a05f; } .line, .scale { stroke: #5f8f89; }
    }
"""
Times = dict[str, float]


@dataclass(frozen=True, slots=True)
class Bar:
    """A name with a value; ours are told from others' by colour."""

    name: str
    value: float
    ours: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars to be compared with each other."""

    title: str
    unit: str
    bars: list[Bar]


def rows_of(benchmark: str) -> dict[str, Times]:
    """What was measured, by question."""
    kept: dict[str, Any] = json.loads((RESULTS / f"{benchmark}.json").read_text(encoding="utf-8"))
    return {row["question"]: row["times"] for row in kept["rows"]}


def langgraph() -> str:
    """Whole graphs on each saver."""
    rows = rows_of("langgraph")
    panels = []
    for what, title, unit in (
        ("total", "500 turns", "s"),
        ("bytes", "on the disk at the end", "MB"),
        ("get_tuple, opened anew", "the latest checkpoint", "ms"),
        ("a turn in a new process", "a turn in a new process", "ms"),
    ):
        sqlite, postgres = rows[f"SqliteSaver: {what}"], rows[f"PostgresSaver: {what}"]
        bars = [
            Bar("SqliteSaver", sqlite["peer"], ours=False),
            Bar("swarmstate", rows[f"swarmstate saver: {what}"]["peer"], ours=False),
            Bar("Holdfast, SQLite", sqlite[OURS], ours=True),
            Bar("PostgresSaver", postgres["peer"], ours=False),
            Bar("Holdfast, PostgreSQL", postgres[OURS], ours=True),
        ]
        panels.append(Panel(title, unit, bars))
    return bar_chart("LangGraph: a graph of 500 turns on each saver", panels)


def documents() -> str:
    """A session to a file and back, beside the least that could be done."""
    rows = rows_of("documents")
    panels = []
    for what, title, unit in (
        ("export: all of it", "export to a file", "ms"),
        ("import: all of it", "import from a file", "ms"),
        ("export: memory at its peak", "memory of the export", "MB"),
        ("import: memory at its peak", "memory of the import", "MB"),
    ):
        names = {"orjson": "orjson alone", OURS: "Holdfast"}
        bars = [Bar(names[name], rows[what][name], ours=name == OURS) for name in names]
        panels.append(Panel(title, unit, bars))
    return bar_chart("Documents: 10,000 messages to a file and back", panels)


def server() -> str:
    """Requests beside the same server that answers from memory."""
    rows = rows_of("server")
    panels = []
    for route in ("GET /agents/{id}/snapshot", "POST /agents/snapshot/restore"):
        bars = [
            Bar(f"{name}, {part}", rows[f"{route}, {part}"][key], ours=key == OURS)
            for part in ("p50", "p99")
            for key, name in (("constant", "from memory"), (OURS, "Holdfast"))
        ]
        panels.append(Panel(route, "ms", bars))
    return bar_chart("The server: latency with eight connections", panels)


def stores() -> str:
    """Each backend beside its bare client."""
    rows = rows_of("stores")
    panels: dict[str, list[tuple[str, Times]]] = {}
    for question, times in rows.items():
        backend, _, what = question.partition(": ")
        if backend != "memory":  # a dict in Python, far off every other
            panels.setdefault(what, []).append((backend, times))
    return dot_chart("State stores: a call, and the bare client's", panels)


def bar_chart(label: str, panels: list[Panel]) -> str:
    """Panels of bars, two beside each other."""
    drawn = []
    for place, panel in enumerated(panels, max(len(panel.bars) for panel in panels)):
        largest = max(bar.value for bar in panel.bars)
        parts = [heading(panel.title, panel.unit)]
        for number, bar in enumerate(panel.bars):
            y = TOP + number * ROW
            long = max(1.5, bar.value / largest * ROOM)
            kind = "ours" if bar.ours else "peer"
            parts.append(
                f'<text class="small end" x="{LABEL - 8}" y="{y + 13}">{bar.name}</text>'
                f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{long:.1f}" height="17" rx="2"/>'
                f'<text class="small" x="{LABEL + long + 6:.1f}" y="{y + 13}">'
                f"{shown(bar.value)}</text>"
            )
        drawn.append(group(place, parts))
    return picture(label, drawn, len(panels), max(len(panel.bars) for panel in panels))


def dot_chart(label: str, panels: dict[str, list[tuple[str, Times]]]) -> str:
    """Panels of pairs of dots on a logarithmic scale, the same for all."""
    values = [value for lines in panels.values() for _, times in lines for value in times.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def across(value: float) -> float:
        return LABEL + (math.log10(value) - low) / (high - low) * (WIDTH - LABEL - 20)

    most = max(map(len, panels.values())) + 1
    drawn = []
    for (place, what), lines in zip(enumerated(panels, most), panels.values(), strict=True):
        bottom = TOP + len(lines) * ROW
        parts = [heading(what, "ms")]
        for power in range(low, high + 1):
            x = across(10.0**power)
            parts.append(
                f'<path class="scale" d="M{x:.1f} {TOP - 4}V{bottom}"/><text class="small" '
                f'text-anchor="middle" x="{x:.1f}" y="{bottom + 14}">{shown(10.0**power)}</text>'
            )
        for number, (name, times) in enumerate(lines):
            y = TOP + number * ROW + 8
            bare, ours = across(times["bare client"]), across(times[OURS])
            parts.append(
                f'<text class="small end" x="{LABEL - 8}" y="{y + 5}">{name}</text>'
                f'<path class="line" d="M{bare:.1f} {y}H{ours:.1f}"/>'
                f'<circle class="peer" cx="{bare:.1f}" cy="{y}" r="5"/>'
                f'<circle class="ours" cx="{ours:.1f}" cy="{y}" r="5"/>'
            )
        drawn.append(group(place, parts))
    return picture(label, drawn, len(panels), most, "bare client")


def enumerated(panels: Iterable[Any], most: int) -> Iterable[tuple[tuple[int, int], Any]]:
    """Panels with their places, row by row."""
    for number, panel in enumerate(panels):
        yield (number % 2 * (WIDTH + 8), number // 2 * (TOP + most * ROW + 16)), panel


def heading(title: str, unit: str) -> str:
    """What a panel shows."""
    return f'<text x="0" y="20" font-weight="bold">{title}, {unit}</text>'


def group(place: tuple[int, int], parts: list[str]) -> str:
    """A panel in its place."""
    return f'<g transform="translate({place[0]}, {place[1]})">\n' + "\n".join(parts) + "\n</g>"


def picture(label: str, drawn: list[str], panels: int, most: int, peer: str = "others") -> str:
    """The whole picture, with what the colours mean below."""
    height = math.ceil(panels / 2) * (TOP + most * ROW + 16)
    legend = (
        f'<rect class="ours" x="0" y="{height}" width="12" height="12" rx="2"/>'
        f'<text class="small" x="18" y="{height + 11}">Holdfast</text>'
        f'<rect class="peer" x="90" y="{height}" width="12" height="12" rx="2"/>'
        f'<text class="small" x="108" y="{height + 11}">{peer}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH + 8} {height + 18}" '
        f'font-family="sans-serif" font-size="14" role="img" aria-label="{label}">\n'
        f"<style>{STYLE}</style>\n" + "\n".join([*drawn, legend]) + "\n</svg>\n"
    )


def shown(value: float) -> str:
    """A figure with as many places as it is worth."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


PLOTS = {
    "bench-langgraph": langgraph,
    "bench-documents": documents,
    "bench-server": server,
    "bench-stores": stores,
}


def main() -> None:
    """Draw all of them."""
    for name, draw in PLOTS.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
