"""Errors as one clear text for the model that made the call: what is wrong, and what to do."""

from __future__ import annotations

import logging

from pydantic import ValidationError

from holdfast.errors import (
    ConflictError,
    HoldfastError,
    IntegrityError,
    NotFoundError,
    StateStoreError,
    UnsupportedValueError,
    short_repr,
)

logger = logging.getLogger(__name__)

MAX_ERRORS = 3
MAX_ERROR_LENGTH = 1500
REMEDIES: list[tuple[type[HoldfastError], str]] = [
    (NotFoundError, "call list_checkpoints to see what exists"),
    (ConflictError, "nothing was written; retry"),
    (UnsupportedValueError, "nothing was written; change the value"),
    (IntegrityError, "ask the operator to run holdfast state verify"),
]


def explain_error(error: Exception) -> str:
    """Return the text of an error, with its remedy. Details of a crash are only logged."""
    if isinstance(error, ValidationError):
        return explain_invalid_arguments(error)
    if isinstance(error, StateStoreError):
        logger.error("%s", error)
        return shorten(f"{error}; {explain_store_failure(error)}")
    if isinstance(error, HoldfastError):
        text = str(error)
        remedy = next((each for kind, each in REMEDIES if isinstance(error, kind)), None)
        # A message with a remedy of its own needs no other.
        return shorten(text if remedy is None or "; " in text else f"{text}; {remedy}")
    if isinstance(error, ValueError | TypeError):
        return shorten(str(error))
    logger.error("a call failed", exc_info=error)
    return f"internal error ({type(error).__name__}); see the server's log"


def explain_store_failure(error: StateStoreError) -> str:
    """Return what to do about a store that failed."""
    if error.unknown:
        return "it may have been written; call list_checkpoints before you retry"
    if error.transient:
        return "nothing was written; retry later"
    return "ask the operator to run holdfast doctor"


def explain_invalid_arguments(error: ValidationError) -> str:
    """Return what is wrong with arguments, by name."""
    problems = []
    for each in error.errors(include_url=False)[:MAX_ERRORS]:
        where = ".".join(str(part) for part in each["loc"]) or "arguments"
        given = "" if each["type"] == "missing" else f", got {short_repr(each['input'])}"
        problems.append(f"{where}: {each['msg']}{given}")
    return shorten(f"invalid arguments: {'; '.join(problems)}; see the input schema of the tool")


def shorten(text: str) -> str:
    """Return a text as one line of bounded length. It may quote what the caller sent."""
    line = " ".join(text.split()).encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= MAX_ERROR_LENGTH else f"{line[:MAX_ERROR_LENGTH]}…"
