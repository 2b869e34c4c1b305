"""Compare MessagePack libraries on our values, and measure what exactness adds.

`ormsgpack` runs with every option that keeps it from changing a type silently; it still accepts
bytearray, memoryview and its own Ext. `msgspec` runs bare: it turns tuples and sets into arrays, so
it is only the limit. `holdfast` is msgspec behind a check that the value is plain.
Run: make bench-codec
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

import msgspec
import ormsgpack

import holdfast.values
from benchmarks.harness import Row, format_table, keep, shuffle, time_call

EXACT = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
SMALL = {"step": 3, "name": "onboarding", "done": False, "items": [1, 2, 3]}


def make_message(rng: random.Random) -> dict[str, Any]:
    """Return a conversation turn with a tool call."""
    words = ["state", "agent", "snapshot", "report", "compare", "plan", "search", "merge"]
    text = " ".join(rng.choice(words) for _ in range(120))
    call = {"name": "search", "arguments": {"query": text[:40], "limit": 10}}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [call],
        "usage": {"in": 812, "out": 97},
    }


def refuse(value: object) -> object:
    """Refuse a type that ormsgpack must not convert."""
    raise TypeError(value)


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small run that writes no results")
    options = parser.parse_args()
    rounds, count = (2, 50) if options.smoke else (60, 5000)
    rng = random.Random(1)
    pack = msgspec.msgpack.Encoder().encode
    unpack = msgspec.msgpack.Decoder(ext_hook=lambda code, data: (code, data)).decode
    packers: dict[str, Callable[[Any], bytes]] = {
        "ormsgpack": lambda value: ormsgpack.packb(value, refuse, EXACT),
        "msgspec": pack,
        "holdfast": holdfast.values.encode,
    }
    unpackers: dict[str, Callable[[bytes], Any]] = {
        "ormsgpack": lambda data: ormsgpack.unpackb(data, ext_hook=lambda code, data: (code, data)),
        "msgspec": unpack,
        "holdfast": holdfast.values.decode,
    }
    rows = []
    for what, value in (("a small dict", SMALL), ("a message", make_message(rng))):
        packing, unpacking = Row(f"pack {what}", "µs"), Row(f"unpack {what}", "µs")
        rows += [packing, unpacking]
        data = pack(value)
        for _ in range(rounds):
            for name in shuffle(list(packers), rng):
                packing.offer(name, time_call(repeat, packers[name], value, count) / count * 1e6)
                unpacking.offer(name, time_call(repeat, unpackers[name], data, count) / count * 1e6)
    print(format_table("operation", rows, "ormsgpack", ["holdfast", "msgspec"]))
    if not options.smoke:
        print(f"written to {keep('codec', rows)}")


def repeat(call: Callable[[Any], object], argument: object, count: int) -> None:
    """Call a function repeatedly."""
    for _ in range(count):
        call(argument)


if __name__ == "__main__":
    main()
