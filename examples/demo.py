"""An agent takes a wrong turn, and Holdfast takes it back. Run: make demo."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import holdfast


def title(text: str) -> None:
    """A headline that a reader can find again."""
    print(f"\n{text}\n{'-' * len(text)}")


def show(store: holdfast.Store, note: str) -> None:
    """What the agent knows now."""
    print(f"  {note}")
    for namespace, key, value in store.snapshot().items():
        print(f"      {namespace + '/' + key:<17} {value}")


def names(pairs: list[tuple[str, str]]) -> str:
    """Pairs as a person writes them."""
    return ", ".join(f"{namespace}/{key}" for namespace, key in pairs) or "none"


def microseconds(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result of the quickest of some calls, and how long that took."""
    best, result = float("inf"), None
    for _ in range(200):
        start = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - start)
    return result, best * 1e6


def main() -> None:
    """Set, snapshot, change, diff, roll back; then a what-if that is merged."""
    how = "compiled" if holdfast.compiled else "interpreted (no C compiler was found)"
    print(f"Holdfast {holdfast.__version__}, {how}")

    title("1. A research agent at work")
    store = holdfast.Store()
    store.set("messages", "000001", {"role": "user", "content": "Compare the two reports"})
    store.set("state", "plan", ["read report A", "read report B", "compare"])
    store.set("state", "step", 1)
    show(store, "This is what it knows:")

    title("2. Freeze it: store.snapshot()")
    good = store.snapshot()
    print(f"  {good!r}, {good.digest[:23]}…")
    print("  One pointer was copied, nothing else. It will never change.")

    title("3. The agent takes a wrong turn")
    store.set("state", "plan", ["delete report A"])
    store.set("state", "step", 2)
    store.set("messages", "000002", {"role": "assistant", "content": "I will delete report A."})
    bad = store.snapshot()
    show(store, "Now it knows this:")

    title("4. What changed? bad.diff(good)")
    difference = bad.diff(good)
    print(f"  added    {names(difference['added'])}")
    print(f"  removed  {names(difference['removed'])}")
    print(f"  changed  {names(difference['changed'])}")

    title("5. Roll it back: store.restore(good)")
    store.restore(good)
    show(store, "As if it had never happened:")
    print(f"  The same content to the last byte: {store.snapshot().digest == good.digest}")

    title("6. Try a what-if in a fork, and merge what it found")
    what_if = store.fork()
    what_if.set("state", "finding", "B is newer than A")
    what_if.set("state", "step", 3)
    store.set("state", "owner", "ada")
    store.merge(what_if, base=good)
    show(store, "Both sides together; a real conflict would have been an error that lists it:")

    title("7. And with 100,000 entries?")
    store.set_many(("facts", f"{at:06}", {"n": at, "text": "a fact"}) for at in range(100_000))
    before, snapshot_time = microseconds(store.snapshot)
    store.set("facts", "004242", {"n": 42, "text": "another fact"})
    after = store.snapshot()
    found, diff_time = microseconds(lambda: after.diff(before))
    print(f"  a snapshot of {len(before):,} entries took {snapshot_time:.1f} µs")
    print(f"  a diff of two of them took {diff_time:.1f} µs and found {names(found['changed'])}")

    print("\nNext: the ten lines in README.md, docs/store.md for all of it, make bench-store.")


if __name__ == "__main__":
    main()
