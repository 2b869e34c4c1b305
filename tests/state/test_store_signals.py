"""Exceptions raised by signal handlers leave a store consistent."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import threading

from holdfast import Store


class InterruptError(Exception):
    pass


def interrupt(*_: object) -> None:
    raise InterruptError


def check_consistency(store: Store) -> None:
    snapshot = store.snapshot()
    entries = list(snapshot.items())
    assert len(store) == len(snapshot) == len(entries)
    assert snapshot.namespaces() == sorted({namespace for namespace, _, _ in entries})
    batch = {value for namespace, _, value in entries if namespace == "batch"}
    assert len(batch) <= 1, "a batch was applied partially"

    seen: list[bool] = []
    other = threading.Thread(target=lambda: seen.append(store.contains("a", "k")), daemon=True)
    other.start()
    other.join(10)
    assert seen, "another thread hangs"
    store.set("a", "after", 1)
    assert store.delete("a", "after")


def test_an_exception_at_any_point_leaves_the_store_consistent():
    # In a subprocess: coverage tools do not survive this.
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
        check_consistency(store)


def main() -> None:
    """Interrupt writes at random points, and check the store each time."""
    signal.signal(signal.SIGALRM, interrupt)
    store = Store(max_history=3)
    rng = random.Random(5)
    interrupts = 0
    for round_ in range(400):
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.00002, 0.002))
            # Bounded, because Python swallows an exception raised in a finalizer.
            for at in range(500):
                store.set("a", f"k{at % 70}", at)
                store.delete("a", f"k{(at * 7) % 70}")
                store.set_many(("batch", f"k{key}", round_ * 1000 + at) for key in range(20))
                with store.transaction():
                    store.set("b", "k", at)
                    store.snapshot()
                store.delete("b", "k")
                store.merge(store.fork(), store.snapshot())
        except InterruptError:
            interrupts += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        check_consistency(store)
    print(interrupts)


if __name__ == "__main__":
    main()
