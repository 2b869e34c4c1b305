"""The ``signatures`` field of a document, before anything in it has been verified.

There is one algorithm, Ed25519, and one encoding of it; a document does not choose.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.documents.encode import SIGNATURES
from holdfast.documents.errors import SignatureError
from holdfast.errors import short_repr

ALGORITHM = "ed25519"
MAX_SIGNATURES = 16
FIELDS = frozenset(("algorithm", "key_id", "signature"))
KEY_ID = re.compile(r"sha256:[0-9a-f]{64}")
SIGNATURE = re.compile(r"[A-Za-z0-9+/]{85}[AQgw]==")


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature that a document claims to have."""

    key_id: str
    value: bytes


def decode_signatures(data: object) -> list[Signature]:
    """Decode the signatures of a document's JSON data; an unsigned document has none.

    Raises:
        SignatureError: They are malformed.

    """
    entries = data.get(SIGNATURES) if isinstance(data, Mapping) else None
    if entries is None:
        return []
    if not isinstance(entries, list) or len(entries) > MAX_SIGNATURES:
        raise malformed_signatures_error(
            f"{SIGNATURES} must be a list of at most {MAX_SIGNATURES} objects"
        )
    return [decode_signature(number, entry) for number, entry in enumerate(entries)]


def decode_signature(number: int, entry: object) -> Signature:
    """Decode one signature."""
    where = f"{SIGNATURES}[{number}]"
    if not isinstance(entry, dict) or entry.keys() != FIELDS:
        raise malformed_signatures_error(
            f"{where} must be an object with the fields {', '.join(sorted(FIELDS))}"
        )
    if entry["algorithm"] != ALGORITHM:
        raise malformed_signatures_error(
            f"{where}.algorithm must be {ALGORITHM}, got {short_repr(entry['algorithm'])}"
        )
    key_id, text = entry["key_id"], entry["signature"]
    if not isinstance(key_id, str) or not KEY_ID.fullmatch(key_id):
        raise malformed_signatures_error(
            f"{where}.key_id must be sha256: and 64 hex digits, got {short_repr(key_id)}"
        )
    if not isinstance(text, str) or not SIGNATURE.fullmatch(text):
        raise malformed_signatures_error(
            f"{where}.signature must be 64 bytes in base64, got {short_repr(text)}"
        )
    return Signature(key_id, base64.b64decode(text))


def encode_signature(signature: Signature) -> dict[str, str]:
    """Return a signature as JSON data."""
    return {
        "algorithm": ALGORITHM,
        "key_id": signature.key_id,
        "signature": base64.b64encode(signature.value).decode(),
    }


def malformed_signatures_error(problem: str) -> SignatureError:
    """Return the error for signatures in a wrong form."""
    return SignatureError(f"malformed signatures: {problem}; get another copy of the document")
