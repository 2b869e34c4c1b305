"""Check the types of untrusted JSON data, with errors that say where it is."""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidDocumentError, short_repr


def expect_object(value: Any, what: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        InvalidDocumentError: It is something else.

    """
    if not isinstance(value, dict):
        raise InvalidDocumentError(f"{what} must be an object, got {short_repr(value)}")
    return value


def expect_objects(value: Any, what: str) -> list[dict[str, Any]]:
    """Return a list of JSON objects.

    Raises:
        InvalidDocumentError: It is something else.

    """
    if not isinstance(value, list):
        raise InvalidDocumentError(f"{what} must be a list of objects, got {short_repr(value)}")
    for number, each in enumerate(value):
        expect_object(each, f"item {number} of {what}")
    return value


def expect_messages(value: Any, what: str) -> list[dict[str, Any]]:
    """Return a list of messages, each with a role.

    Raises:
        InvalidDocumentError: It is something else.

    """
    for number, each in enumerate(expect_objects(value, what)):
        if not isinstance(each.get("role"), str):
            raise InvalidDocumentError(
                f"item {number} of {what} is not a message with a role: {short_repr(each)}"
            )
    return list(value)


def expect_text(value: Any, what: str) -> str:
    """Return a str that is not empty.

    Raises:
        InvalidDocumentError: It is something else.

    """
    if not isinstance(value, str) or not value:
        raise InvalidDocumentError(f"{what} must be a non-empty str, got {short_repr(value)}")
    return value
