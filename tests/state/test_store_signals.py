"""A Ctrl-C, or any exception that Python raises from outside, leaves a sound store."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import threading

from holdfast import Store


class StruckError(Exception):
    pass


def strike(*_: object) -> None:
    raise StruckError


def check(store: Store) -> None:
    snapshot = store.snapshot()
    entries = list(snapshot.items())
    assert len(store) == len(snapshot) == len(entries)
    assert snapshot.namespaces() == sorted({namespace for namespace, _, _ in entries})
    batch = {value for namespace, _, value in entries if namespace == "batch"}
    assert len(batch) <= 1, "a batch is there in part"

    seen: list[bool] = []
    other = threading.Thread(target=lambda: seen.append(store.contains("a", "k")), daemon=True)
    other.start()
    other.join(10)
    assert seen, "another thread waits for ever"
    store.set("a", "after", 1)
    assert store.delete("a", "after")


def test_an_exception_at_any_point_leaves_the_store_consistent():
    # In a process of its own: a tool that measures coverage does not survive what is done there.
    done = subprocess.run(
        [sys.executable, __file__],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 100


def test_a_recursion_error_in_a_write_leaves_the_store_consistent():
    store = Store()
    store.set_many(("a", f"k{at}", at) for at in range(60))

    def deeper(call, depth: int) -> None:
        if depth:
            deeper(call, depth - 1)
        else:
            call()

    def delete(at: int) -> None:
        store.delete("a", f"k{at % 60}")

    def batch(at: int) -> None:
        store.set_many(("batch", f"k{key}", at) for key in range(70))

    room = sys.getrecursionlimit()
    for depth in range(room - 150, room):
        for call in (delete, batch):
            with contextlib.suppress(RecursionError):
                deeper(lambda call=call, depth=depth: call(depth), depth)
        check(store)


def main() -> None:
    """Strike while a program works with a store, and see each time what is left of it."""
    signal.signal(signal.SIGALRM, strike)
    store = Store(max_history=3)
    rng = random.Random(5)
    struck = 0
    for turn in range(400):
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.00002, 0.002))
            # Bounded, as Python swallows an exception that strikes in a finalizer.
            for at in range(500):
                store.set("a", f"k{at % 70}", at)
                store.delete("a", f"k{(at * 7) % 70}")
                store.set_many(("batch", f"k{key}", turn * 1000 + at) for key in range(20))
                with store.transaction():
                    store.set("b", "k", at)
                    store.snapshot()
                store.delete("b", "k")
                store.merge(store.fork(), store.snapshot())
        except StruckError:
            struck += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        check(store)
    print(struck)


if __name__ == "__main__":
    main()
