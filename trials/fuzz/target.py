"""What a reader is, and what all readers promise.

An input is accepted, or refused with one of the errors that the target names, in a message of
reasonable length, within the limits of the sandbox.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis.strategies import SearchStrategy

from holdfast import HoldfastError, InvalidDocumentError, UnsupportedValueError
from trials.fuzz.sandbox import Sandbox

ACCEPTED, REFUSED = "accepted", "refused"


class Target(ABC):
    """A reader under test."""

    refusals: tuple[type[HoldfastError], ...] = (InvalidDocumentError, UnsupportedValueError)
    longest_message = 2000
    valid: Sequence[Any]
    """Inputs that the reader accepts."""
    inputs: SearchStrategy[Any]
    """Mutated and generated inputs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def check(self, data: Any) -> None:
        """Read the input, and assert what must hold if it is accepted."""


def examine(target: Target, data: Any, sandbox: Sandbox) -> str:
    """Return whether a target accepts or refuses an input.

    Raises:
        AssertionError: The target broke a promise.

    """
    with sandbox.guard(data):
        try:
            target.check(data)
        except target.refusals as error:
            size = len(str(error))
            assert size <= target.longest_message, f"message of {size:,} characters: {error!s:.300}"
            return REFUSED
    return ACCEPTED
