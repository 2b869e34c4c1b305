"""Plot the results of benchmarks for docs/benchmarks.md.

``python -m tools.plots`` draws the SVGs from `benchmarks/results/`; a test fails if they are old.
They are readable on light and dark pages and load no fonts. Bars start at 0; values too far apart
for bars are dots on a logarithmic scale.
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
ROOM = WIDTH - LABEL - 74  # the longest bar, with space for its value
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
    """A name and a value; ``ours`` selects the colour."""

    name: str
    value: float
    ours: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars on one scale."""

    title: str
    unit: str
    bars: list[Bar]


def read_rows(benchmark: str) -> dict[str, Times]:
    """Return the measurements, by question."""
    kept: dict[str, Any] = json.loads((RESULTS / f"{benchmark}.json").read_text(encoding="utf-8"))
    return {row["question"]: row["times"] for row in kept["rows"]}


def langgraph() -> str:
    """Plot whole graphs on each saver."""
    rows = read_rows("langgraph")
    panels = []
    for what, title, unit in (
        ("total", "500 turns", "s"),
        ("bytes", "on the disk at the end", "MB"),
        ("get_tuple after reopening", "the latest checkpoint", "ms"),
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
    """Plot a session written to a file and read back, beside the minimum of work."""
    rows = read_rows("documents")
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
    """Plot requests, beside a server that answers from memory."""
    rows = read_rows("server")
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
    """Plot each backend beside its bare client."""
    rows = read_rows("stores")
    panels: dict[str, list[tuple[str, Times]]] = {}
    for question, times in rows.items():
        backend, _, what = question.partition(": ")
        if backend != "memory":  # a Python dict would dwarf every other
            panels.setdefault(what, []).append((backend, times))
    return dot_chart("State stores: a call, and the bare client's", panels)


def bar_chart(label: str, panels: list[Panel]) -> str:
    """Draw panels of bars, two per row."""
    drawn = []
    for place, panel in lay_out(panels, max(len(panel.bars) for panel in panels)):
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
                f"{format_number(bar.value)}</text>"
            )
        drawn.append(group(place, parts))
    return picture(label, drawn, len(panels), max(len(panel.bars) for panel in panels))


def dot_chart(label: str, panels: dict[str, list[tuple[str, Times]]]) -> str:
    """Draw panels of pairs of dots on one logarithmic scale."""
    values = [value for lines in panels.values() for _, times in lines for value in times.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def across(value: float) -> float:
        return LABEL + (math.log10(value) - low) / (high - low) * (WIDTH - LABEL - 20)

    most = max(map(len, panels.values())) + 1
    drawn = []
    for (place, what), lines in zip(lay_out(panels, most), panels.values(), strict=True):
        bottom = TOP + len(lines) * ROW
        parts = [heading(what, "ms")]
        for power in range(low, high + 1):
            x = across(10.0**power)
            parts.append(
                f'<path class="scale" d="M{x:.1f} {TOP - 4}V{bottom}"/><text class="small" '
                f'text-anchor="middle" x="{x:.1f}" y="{bottom + 14}">'
                f"{format_number(10.0**power)}</text>"
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


def lay_out(panels: Iterable[Any], most: int) -> Iterable[tuple[tuple[int, int], Any]]:
    """Yield panels with their position, row by row."""
    for number, panel in enumerate(panels):
        yield (number % 2 * (WIDTH + 8), number // 2 * (TOP + most * ROW + 16)), panel


def heading(title: str, unit: str) -> str:
    """Draw the title of a panel."""
    return f'<text x="0" y="20" font-weight="bold">{title}, {unit}</text>'


def group(place: tuple[int, int], parts: list[str]) -> str:
    """Draw a panel at its position."""
    return f'<g transform="translate({place[0]}, {place[1]})">\n' + "\n".join(parts) + "\n</g>"


def picture(label: str, drawn: list[str], panels: int, most: int, peer: str = "others") -> str:
    """Return the whole SVG with a legend."""
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


def format_number(value: float) -> str:
    """Format a number with a sensible precision."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


PLOTS = {
    "bench-langgraph": langgraph,
    "bench-documents": documents,
    "bench-server": server,
    "bench-stores": stores,
}


def main() -> None:
    """Write all plots."""
    for name, draw in PLOTS.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
