"""The names of records in a Dapr component.

    research/keys/<the key>        with % and | and controls as %xx; a long one as %~<its sha256>
    research/index/<page>          of the index of keys
    research/verdicts/<batch>      while several records are changed together

Dapr puts a prefix before them, by the component's setting ``keyPrefix``: the app's id, as a rule.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256

from holdfast.errors import StateStoreError, short_repr
from holdfast.stores.validation import encode_text

MAX_NAMESPACE = 64
MAX_NAME = 150
"""Bytes of a name. Some components have room for 200 characters, with the prefix."""

SPECIAL = re.compile(r"[\x00-\x1f\x7f%|]")


def record_name(namespace: str, key: str) -> str:
    """The name of the record of a key."""
    name = f"{namespace}/keys/{escape_name(key)}"
    if len(name.encode()) <= MAX_NAME:
        return name
    return f"{namespace}/keys/%~{sha256(key.encode()).hexdigest()}"


def page_prefix(namespace: str) -> str:
    """What the names of the pages of the index begin with."""
    return f"{namespace}/index/"


def verdict_prefix(namespace: str) -> str:
    """What the names of verdicts begin with."""
    return f"{namespace}/verdicts/"


def new_page_name() -> str:
    """A page that nobody else has."""
    return secrets.token_hex(8)


def validate_namespace(namespace: object) -> str:
    """A namespace as it stands in names, or a refusal."""
    if not isinstance(namespace, str):
        raise TypeError(f"a namespace is a str, not {short_repr(namespace)}")
    name = escape_name(namespace)
    if not 0 < len(encode_text(name, "namespace")) <= MAX_NAMESPACE:
        raise StateStoreError(
            f"a namespace has 1 to {MAX_NAMESPACE} bytes, which {short_repr(namespace)} has not"
        )
    return name


def escape_name(text: str) -> str:
    """Text that Dapr takes as a part of a name."""
    return SPECIAL.sub(lambda found: f"%{ord(found[0]):02x}", text)
