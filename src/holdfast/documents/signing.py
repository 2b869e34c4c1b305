"""Sign documents and verify their signatures, with Ed25519.

A digest only detects accidents, since anyone can recompute it. A signature proves who made a
document, and covers everything but the signatures themselves: ids, tags, times, state, events and
unknown fields. docs/spec/document.md defines the signed bytes. The reader decides which keys are
trusted, never the document.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from holdfast.documents.document import Document, require_document
from holdfast.documents.encode import SIGNATURES, encode_canonical, normalize_json
from holdfast.documents.errors import SignatureError
from holdfast.documents.signatures import (
    MAX_SIGNATURES,
    Signature,
    decode_signatures,
    encode_signature,
)
from holdfast.documents.signing_keys import KeyFileError, PublicKey, SigningKey, load_trusted_keys
from holdfast.errors import short_repr

__all__ = [
    "KeyFileError",
    "PublicKey",
    "Signature",
    "SignatureError",
    "SigningKey",
    "load_trusted_keys",
    "read_signatures",
    "sign_document",
    "verify_signature",
]

DOMAIN = b"holdfast document v1\n"
"""Prefix of the signed message, so that a signature made for another purpose is not valid here."""


def sign_document(document: Document, key: SigningKey) -> Document:
    """Return the document with a signature by this key added.

    Signatures by other keys are kept. Any later change, redaction included, invalidates them:
    sign last.

    Raises:
        SignatureError: The document has too many signatures, or malformed ones.

    """
    require_document(document, "sign_document")
    if not isinstance(key, SigningKey):
        raise TypeError(
            f"expected a SigningKey as SigningKey.from_file() returns it, got {short_repr(key)}"
        )
    others = [each for each in document.signatures if each.key_id != key.key_id]
    if len(others) >= MAX_SIGNATURES:
        raise SignatureError(f"the document has {len(others)} signatures, which is the maximum")
    document = document.without_signatures()
    document = replace(
        document,
        extra=normalize_json(document.extra),
        state_extra=normalize_json(document.state_extra),
    )
    signature = Signature(key.key_id, key.sign(compute_signed_message(document)))
    encoded = [encode_signature(each) for each in [*others, signature]]
    return replace(document, extra={**document.extra, SIGNATURES: encoded})


def verify_signature(
    document: Document | object, trusted: Iterable[PublicKey]
) -> tuple[PublicKey, ...]:
    """Return those of the trusted keys that signed exactly this document.

    JSON data is verified as it is, a `Document` as it would be written.

    Raises:
        SignatureError: No trusted key signed it, or it was changed since.

    """
    known = validate_trusted_keys(trusted)
    signatures = read_signatures(document)
    if not signatures:
        raise SignatureError(
            "the document is not signed, and a signature is required; sign it when exporting, as "
            "with holdfast state export --sign"
        )
    candidates = [each for each in signatures if each.key_id in known]
    if not candidates:
        raise SignatureError(
            f"the document is signed by {join_key_ids(each.key_id for each in signatures)}, but "
            f"only {join_key_ids(known)} is trusted; trust that key if you know its owner"
        )
    message = compute_signed_message(cast("Document | Mapping[str, Any]", document))
    valid = {each.key_id for each in candidates if known[each.key_id].verifies(each.value, message)}
    if not valid:
        raise SignatureError(
            f"the signature of {join_key_ids(each.key_id for each in candidates)} does not match "
            "the document: it was changed after it was signed; get another copy"
        )
    return tuple(key for key_id, key in known.items() if key_id in valid)


def validate_trusted_keys(trusted: Iterable[PublicKey]) -> dict[str, PublicKey]:
    """Return trusted keys by id. An empty list is an error: nothing could be verified."""
    if isinstance(trusted, str | bytes | os.PathLike):
        raise TypeError(
            "trusted must be a list of PublicKey as load_trusted_keys(path) returns it, got "
            f"{short_repr(trusted)}"
        )
    keys: dict[str, PublicKey] = {}
    for key in trusted:
        if not isinstance(key, PublicKey):
            raise TypeError(f"a trusted key must be a PublicKey, got {short_repr(key)}")
        keys.setdefault(key.key_id, key)
    if not keys:
        raise ValueError("no trusted keys were given, so no signature could be verified")
    return keys


def record_signers(document: Document, keys: Iterable[PublicKey]) -> Document:
    """Return the document with the keys whose signatures were verified in ``signed_by``."""
    copy = replace(document)
    object.__setattr__(copy, "signed_by", tuple(key.key_id for key in keys))
    return copy


def read_signatures(document: Document | object) -> list[Signature]:
    """Return the signatures of a document or of its JSON data, without verifying them.

    Raises:
        SignatureError: They are malformed.

    """
    return decode_signatures(document.extra if isinstance(document, Document) else document)


def compute_signed_message(document: Document | Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed: a fixed prefix and the hash of the canonical JSON.

    Raises:
        SignatureError: It is not JSON data, and so has no canonical form.

    """
    digest = hashlib.sha512()
    try:
        if isinstance(document, Document):
            pieces = document.canonical()
        else:
            pieces = encode_canonical(document)
        for piece in pieces:
            digest.update(piece)
    except (TypeError, ValueError, RecursionError) as error:
        raise SignatureError(f"the document has no canonical form: {error}") from error
    return DOMAIN + digest.digest()


def join_key_ids(key_ids: Iterable[str]) -> str:
    """Return key ids for an error message."""
    return " and ".join(dict.fromkeys(key_ids))
