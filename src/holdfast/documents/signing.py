"""Documents that say who made them: Ed25519 signatures over all that a document says.

A digest finds accidents: whoever changes a document can compute another one. A signature can only
be made by the holder of a private key, and covers everything but the signatures themselves: ids,
tags, times, state, events, and fields that nobody here knows. docs/spec/document.md says which
bytes are signed.

There is one algorithm, and a document does not choose it. Which keys are trusted is for the reader
to say, and never for the document. Who requires no signature needs no cryptography.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from holdfast.documents.encode import SIGNATURES, encode_canonical, plain_json
from holdfast.documents.signing_keys import KeyFileError, PublicKey, SigningKey, load_trusted_keys
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.snapshots.session_snapshot import SessionSnapshot

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

ALGORITHM = "ed25519"
DOMAIN = b"holdfast document v1\n"
"""Goes before what is signed: a signature made for something else is none of a document."""
MAX_SIGNATURES = 16
FIELDS = frozenset(("algorithm", "key_id", "signature"))
KEY_ID = re.compile(r"sha256:[0-9a-f]{64}")
SIGNATURE = re.compile(r"[A-Za-z0-9+/]{85}[AQgw]==")


class SignatureError(InvalidDocumentError):
    """A document is not signed by a key that is trusted, or was changed since."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a document says of one who signed it. Nothing of it is true until it is checked."""

    key_id: str
    value: bytes


def sign_document(document: SessionSnapshot, key: SigningKey) -> SessionSnapshot:
    """The document with a signature of all that it says, beside those that it has of other keys.

    What is changed afterwards, by redaction too, makes it wrong: sign last.
    """
    if not isinstance(document, SessionSnapshot):
        raise TypeError(f"a SessionSnapshot is signed, not {short_repr(document)}")
    if not isinstance(key, SigningKey):
        raise TypeError(
            f"a document is signed with a SigningKey, as SigningKey.from_file() gives it, not "
            f"{short_repr(key)}"
        )
    others = [each for each in read_signatures(document) if each.key_id != key.key_id]
    if len(others) >= MAX_SIGNATURES:
        raise SignatureError(f"the document has {len(others)} signatures, which is the most")
    # As they will be read: a tuple becomes a list, and a number that is a name becomes a text.
    known = {name: value for name, value in document.extra.items() if name != SIGNATURES}
    document = replace(
        document, extra=plain_json(known), state_extra=plain_json(document.state_extra)
    )
    made = Signature(key.key_id, key.sign(compute_signed_message(document)))
    return replace(
        document,
        extra={**document.extra, SIGNATURES: [encode_signature(each) for each in [*others, made]]},
    )


def verify_signature(document: object, trusted: Iterable[PublicKey]) -> tuple[PublicKey, ...]:
    """Those of the trusted keys that signed exactly this document; `SignatureError` if none did.

    JSON data is checked as it stands, a `SessionSnapshot` as it would be written.
    """
    known = validate_trusted_keys(trusted)
    found = read_signatures(document)
    if not found:
        raise SignatureError(
            "the document is not signed, and a signature is required: have whoever made it sign "
            "it, as with holdfast state export --sign"
        )
    ours = [each for each in found if each.key_id in known]
    if not ours:
        raise SignatureError(
            f"the document is signed by {join_key_ids(each.key_id for each in found)}, and trusted is "
            f"{join_key_ids(known)}: if it is known whose key that is, trust it too"
        )
    message = compute_signed_message(cast("SessionSnapshot | Mapping[str, Any]", document))
    right = {each.key_id for each in ours if known[each.key_id].verifies(each.value, message)}
    if not right:
        raise SignatureError(
            f"the signature of {join_key_ids(each.key_id for each in ours)} does not match the document: "
            "it was changed or damaged after it was signed. Get another copy, or have it signed "
            "anew"
        )
    return tuple(key for key_id, key in known.items() if key_id in right)


def validate_trusted_keys(trusted: Iterable[PublicKey]) -> dict[str, PublicKey]:
    """Trusted keys by their ids. None at all is a mistake, and not a way to check nothing."""
    if isinstance(trusted, str | bytes | os.PathLike):
        raise TypeError(
            f"trusted is a list of PublicKey, as trusted_keys(path) gives it, not {short_repr(trusted)}"
        )
    found: dict[str, PublicKey] = {}
    for key in trusted:
        if not isinstance(key, PublicKey):
            raise TypeError(f"a trusted key is a PublicKey, not {short_repr(key)}")
        found.setdefault(key.key_id, key)
    if not found:
        raise ValueError("a signature is required, and no key is trusted: nothing could pass")
    return found


def record_signers(document: SessionSnapshot, keys: Iterable[PublicKey]) -> SessionSnapshot:
    """A document of which these keys were just found to have signed what it was read from."""
    found = replace(document)
    object.__setattr__(found, "signed_by", tuple(key.key_id for key in keys))
    return found


def read_signatures(document: object) -> list[Signature]:
    """The signatures of a document, none where it has none. `SignatureError` if malformed."""
    tree = document.extra if isinstance(document, SessionSnapshot) else document
    entries = tree.get(SIGNATURES) if isinstance(tree, Mapping) else None
    if entries is None:
        return []
    if not isinstance(entries, list) or len(entries) > MAX_SIGNATURES:
        raise malformed_signatures_error(f"{SIGNATURES} is a list of at most {MAX_SIGNATURES}")
    return [decode_signature(number, entry) for number, entry in enumerate(entries)]


def decode_signature(number: int, entry: object) -> Signature:
    """One signature, in the one form that there is."""
    where = f"{SIGNATURES}[{number}]"
    if not isinstance(entry, dict) or entry.keys() != FIELDS:
        raise malformed_signatures_error(f"{where} is an object of {', '.join(sorted(FIELDS))}")
    if entry["algorithm"] != ALGORITHM:
        raise malformed_signatures_error(
            f"{where}.algorithm is {ALGORITHM}, not {short_repr(entry['algorithm'])}"
        )
    key_id, text = entry["key_id"], entry["signature"]
    if not isinstance(key_id, str) or not KEY_ID.fullmatch(key_id):
        raise malformed_signatures_error(
            f"{where}.key_id is sha256: and 64 digits, not {short_repr(key_id)}"
        )
    if not isinstance(text, str) or not SIGNATURE.fullmatch(text):
        raise malformed_signatures_error(
            f"{where}.signature is 64 bytes in base64, not {short_repr(text)}"
        )
    return Signature(key_id, base64.b64decode(text))


def encode_signature(signature: Signature) -> dict[str, str]:
    """A signature as it is written."""
    return {
        "algorithm": ALGORITHM,
        "key_id": signature.key_id,
        "signature": base64.b64encode(signature.value).decode(),
    }


def malformed_signatures_error(problem: str) -> SignatureError:
    """The error for signatures that are not in their form."""
    return SignatureError(f"the document's signatures are malformed: {problem}. Get another copy")


def compute_signed_message(document: SessionSnapshot | Mapping[str, Any]) -> bytes:
    """What is signed of a document: a few bytes, whatever its size."""
    digest = hashlib.sha512()
    try:
        for piece in iter_canonical(document):
            digest.update(piece)
    except (TypeError, ValueError, RecursionError) as error:
        raise SignatureError(f"the document has no form that can be signed: {error}") from error
    return DOMAIN + digest.digest()


def iter_canonical(document: SessionSnapshot | Mapping[str, Any]) -> Iterator[bytes]:
    """The canonical bytes of a document."""
    return (
        document.canonical()
        if isinstance(document, SessionSnapshot)
        else encode_canonical(document)
    )


def join_key_ids(key_ids: Iterable[str]) -> str:
    """Ids of keys for an error."""
    return " and ".join(dict.fromkeys(key_ids))
