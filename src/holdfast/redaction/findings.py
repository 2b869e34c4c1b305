"""What redaction finds in a text, and the libraries that it needs for that."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

from holdfast.stores.registry import MissingStoreExtraError

SECRET = "secret"  # noqa: S105 - the name of a kind


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to take out of a text."""

    start: int
    end: int
    kind: str
    distinct: bool = True
    """Whether the same characters mean the same wherever they stand; a password may be a word."""


def is_separate_word(text: str, start: int, end: int) -> bool:
    """Whether no letter, digit, dash or underscore stands beside it."""
    beside = text[max(0, start - 1) : start] + text[end : end + 1]
    return not any(char.isalnum() or char in "-_" for char in beside)


def match_end(regex: re.Pattern[str], text: str, at: int) -> int:
    """Return where something ends that goes on like this."""
    match = regex.match(text, at)
    return at if match is None else match.end()


def import_library(module: str) -> Any:
    """Import a module of the libraries that redaction needs, or say how to get them."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingStoreExtraError(
            f"redaction needs {error.name}: pip install 'holdfast[redaction]', or name paths alone",
            "redaction",
        ) from None
