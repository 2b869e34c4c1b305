"""What a value may be, and its two forms: bytes and JSON.

A value goes in as Python data and comes back equal and of the same types. In bytes it is msgpack;
what msgpack cannot say is an extension type. In JSON it is itself; what JSON cannot say is an
object with one key that starts with ``$`` (a tag), and a user's own dict of that shape gets a
second ``$``. Decoding is data only: nothing that the data names is ever imported or called, except
the functions that the caller registered for that very name. docs/spec/values.md describes both.
"""

from __future__ import annotations

from holdfast.values.binary_encoding import decode, encode
from holdfast.values.extensions import MAX_DEPTH
from holdfast.values.json_encoding import from_json, to_json
from holdfast.values.lowering import register_type

__all__ = [
    "MAX_DEPTH",
    "decode",
    "encode",
    "from_json",
    "register_type",
    "to_json",
]
