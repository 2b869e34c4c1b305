"""The names of records in a Dapr component.

    research/keys/<the key>        %, | and control characters as %xx; a long key as %~<its sha256>
    research/index/<page>          of the index of keys
    research/verdicts/<batch>      while several records are changed together

Dapr adds a prefix to them, by the component's setting ``keyPrefix``, usually the app id.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256

from holdfast.errors import StateStoreError, short_repr
from holdfast.stores.validation import encode_text

MAX_NAMESPACE = 64
MAX_NAME = 150
"""Bytes of a name. Some components have room for 200 characters, including Dapr's prefix."""

SPECIAL = re.compile(r"[\x00-\x1f\x7f%|]")


def record_name(namespace: str, key: str) -> str:
    """Return the name of a key's record."""
    name = f"{namespace}/keys/{escape_name(key)}"
    if len(name.encode()) <= MAX_NAME:
        return name
    return f"{namespace}/keys/%~{sha256(key.encode()).hexdigest()}"


def page_prefix(namespace: str) -> str:
    """Return the prefix of the names of index pages."""
    return f"{namespace}/index/"


def outcome_prefix(namespace: str) -> str:
    """Return the prefix of the names of the outcomes of batches."""
    return f"{namespace}/verdicts/"


def new_page_name() -> str:
    """Return a unique name for an index page."""
    return secrets.token_hex(8)


def validate_namespace(namespace: object) -> str:
    """Return a namespace, escaped.

    Raises:
        TypeError: It is not a str.
        StateStoreError: It is empty or too long.

    """
    if not isinstance(namespace, str):
        raise TypeError(f"namespace must be a str, got {short_repr(namespace)}")
    name = escape_name(namespace)
    if not 0 < len(encode_text(name, "namespace")) <= MAX_NAMESPACE:
        raise StateStoreError(
            f"namespace must have 1 to {MAX_NAMESPACE} bytes, got {short_repr(namespace)}"
        )
    return name


def escape_name(text: str) -> str:
    """Return text that Dapr accepts as part of a name."""
    return SPECIAL.sub(lambda found: f"%{ord(found[0]):02x}", text)
