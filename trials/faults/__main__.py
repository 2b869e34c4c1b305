"""Every operation, with every fault at every call: ``python -m trials.faults``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from holdfast.testing.faulty_store import KINDS
from trials.faults.trial import STORES, Trial
from trials.report import Report, progress


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m trials.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=4.0, help="how long at most")
    parser.add_argument("--store", choices=STORES, action="append", help="only on these")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these faults")
    parser.add_argument("--only", default="", help="only operations with this in their names")
    parser.add_argument("--seed", type=int, default=1, help="which come first if time is short")
    return parser.parse_args()


def main() -> int:
    """Run the trial and return its exit code."""
    asked = arguments()
    # Warnings about deferred keyframes are expected.
    logging.getLogger("holdfast").setLevel(logging.ERROR)
    report = Report("Faults")
    with report.to_the_end(), progress("faults", asked.minutes * 60) as bar:
        trial = Trial(
            report,
            stores=asked.store or tuple(STORES),
            kinds=asked.kind or KINDS,
            only=asked.only,
            seconds=asked.minutes * 60,
            seed=asked.seed,
            bar=bar,
        )
        asyncio.run(trial.run())
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
