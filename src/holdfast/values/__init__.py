"""The supported types of values, and their binary and JSON encodings.

Values round-trip with equal value and type. The binary encoding is msgpack, with extension types
for what msgpack lacks. In JSON, other types are objects with one key that starts with ``$`` (a
tag); a user's dict that looks like a tag is escaped with a second ``$``. Decoding is data only: it
never imports or calls anything that the data names, except the decoders that the caller registered.
docs/spec/values.md specifies both encodings.
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
