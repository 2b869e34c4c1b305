"""Authenticated encryption of values with AES-256-GCM.

A stored value:

    fa 48 46 45   magic
    01            version of this format
    n             length of the key id, then the id in UTF-8
    12 bytes      random nonce
    the rest      ciphertext and a tag of 16 bytes

Everything before the nonce, and the store's key, is authenticated. So a value that was changed or
moved to another key is rejected. Values that were not written with encryption are rejected too:
otherwise anyone who can write to the store could replace encrypted values by plain text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from holdfast.errors import ConflictError, IntegrityError, StateStoreError, short_repr
from holdfast.extras import require_extra
from holdfast.stores.base import StateStore
from holdfast.stores.urls import VARIABLE_NAME
from holdfast.stores.wrappers.base import TransformedStateStore, WrappedStateStore
from holdfast.stores.wrappers.prefix import PrefixedStateStore

with require_extra("encryption"):
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"\xfaHFE"
VERSION = 1
SECRET_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
MAX_VALUE_BYTES = 2**31 - 1 - TAG_BYTES
"""The limit of the cipher for one message."""

KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, repr=False)
class EncryptionKeys:
    """Secrets of 32 bytes by key id: the first encrypts, all of them decrypt.

    An id has 1 to 64 of the characters ``A-Z a-z 0-9 . _ -`` and is stored with each value, not
    encrypted.

    Raises:
        TypeError: The secrets are not a mapping to bytes.
        ValueError: There is no key, or an id or secret is invalid.

    """

    secrets: Mapping[str, bytes]

    def __post_init__(self) -> None:
        if not isinstance(self.secrets, Mapping):
            raise TypeError("encryption keys must be a mapping of ids to secrets of 32 bytes")
        if not self.secrets:
            raise ValueError("encryption needs at least one key")
        for key_id, secret in self.secrets.items():
            if not isinstance(key_id, str) or not KEY_ID.fullmatch(key_id):
                raise ValueError(
                    "encryption key id must have 1 to 64 of the characters A-Z a-z 0-9 . _ -"
                )
            if not isinstance(secret, bytes):
                raise TypeError(
                    f"encryption key {key_id} must be bytes, got {type(secret).__name__}"
                )
            if len(secret) != SECRET_BYTES:
                raise ValueError(
                    f"encryption key {key_id} must have {SECRET_BYTES} bytes, got {len(secret)}"
                )
        object.__setattr__(self, "secrets", MappingProxyType(dict(self.secrets)))

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, starting with the one that encrypts."""
        return tuple(self.secrets)

    def __repr__(self) -> str:
        return f"EncryptionKeys({', '.join(self.ids)})"


def new_key() -> str:
    """Return a new key as ``id:secret``, for the environment variable. A secret."""
    secret = secrets.token_bytes(SECRET_BYTES)
    return f"{derive_key_id(secret)}:{base64.b64encode(secret).decode()}"


def derive_key_id(secret: bytes) -> str:
    """Return the id of a key without one. It does not reveal the secret."""
    return hashlib.sha256(b"holdfast: the id of an encryption key\0" + secret).hexdigest()[:12]


def keys_from_environment(name: str) -> EncryptionKeys:
    """Return the keys in an environment variable: ``id:secret`` each, separated by commas.

    A secret is 32 bytes in base64. A key without an id gets one derived from the secret.

    Raises:
        StateStoreError: The variable is not set, or a key in it is invalid.

    """
    if not VARIABLE_NAME.fullmatch(name):
        # Not repeated, because it may be the key itself.
        raise StateStoreError(
            "option encrypt must be the name of an environment variable with the key, not the key "
            "itself; use capital letters, digits and _, as in HOLDFAST_KEYS"
        )
    text = os.environ.get(name, "")
    if not text.strip():
        raise StateStoreError(
            f"environment variable {name} with the encryption keys is not set; generate a key with "
            "holdfast.stores.wrappers.encryption.new_key()"
        )
    keys: dict[str, bytes] = {}
    for number, item in enumerate(text.split(","), start=1):
        key_id, secret = parse_key(item.strip(), f"key {number} in environment variable {name}")
        if key_id in keys:
            raise StateStoreError(
                f"environment variable {name} has key id {key_id} twice; remove one"
            )
        keys[key_id] = secret
    return EncryptionKeys(keys)


def parse_key(item: str, where: str) -> tuple[str, bytes]:
    """Return the id and the secret of a key.

    Raises:
        StateStoreError: It is invalid. The message repeats no part of it.

    """
    key_id, colon, text = item.rpartition(":")
    if colon and not KEY_ID.fullmatch(key_id):
        raise StateStoreError(
            f"{where} has an invalid id: it must have 1 to 64 of the characters A-Z a-z 0-9 . _ -"
        )
    # Accept both alphabets, with or without padding, as tools that generate keys produce them.
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        secret = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise StateStoreError(
            f"{where} is not base64; write keys as id:secret, as new_key() returns them, separated "
            "by commas"
        ) from None
    if len(secret) != SECRET_BYTES:
        raise StateStoreError(
            f"{where} must have {SECRET_BYTES} bytes, got {len(secret)}; use new_key()"
        )
    return (key_id if colon else derive_key_id(secret)), secret


class EncryptedStateStore(TransformedStateStore):
    """A store that encrypts its values. Keys, sizes and times of changes are not hidden."""

    encrypts = True

    def __init__(self, inner: StateStore, keys: EncryptionKeys) -> None:
        super().__init__(inner)
        if not isinstance(keys, EncryptionKeys):
            # Not repeated, because it may be a secret.
            raise TypeError(f"keys must be EncryptionKeys, got {type(keys).__name__}")
        self.keys = keys
        self._ciphers = {key_id: AESGCM(secret) for key_id, secret in keys.secrets.items()}

    def _encode(self, key: str, value: bytes) -> bytes:
        if len(value) > MAX_VALUE_BYTES:
            raise StateStoreError(
                f"value of key {short_repr(key)} has {len(value):,} bytes, and encryption allows "
                f"{MAX_VALUE_BYTES:,}; split it into several keys"
            )
        key_id = self.keys.ids[0]
        header = encode_header(key_id)
        nonce = secrets.token_bytes(NONCE_BYTES)
        return header + nonce + self._ciphers[key_id].encrypt(nonce, value, header + key.encode())

    def _decode(self, key: str, stored: bytes) -> bytes:
        key_id = self._read_key_id(key, stored)
        if key_id not in self._ciphers:
            raise IntegrityError(
                f"value of key {short_repr(key)} was encrypted with key {key_id}, which is "
                f"missing; add it after {', '.join(self.keys.ids)}"
            )
        header = encode_header(key_id)
        start = len(header) + NONCE_BYTES
        nonce, ciphertext = stored[len(header) : start], stored[start:]
        try:
            return self._ciphers[key_id].decrypt(nonce, ciphertext, header + key.encode())
        except InvalidTag:
            raise IntegrityError(
                f"value of key {short_repr(key)} cannot be decrypted: it is damaged, was moved "
                f"from another key, or encryption key {key_id} had another secret; restore it "
                "from a backup, or find that secret"
            ) from None

    def _read_key_id(self, key: str, stored: bytes) -> str:
        """Return the id of the encryption key of a value.

        Raises:
            IntegrityError: It is not an encrypted value of a known format.

        """
        start = len(MAGIC) + 2
        if not stored.startswith(MAGIC):
            raise IntegrityError(
                f"value of key {short_repr(key)} is not encrypted: it is damaged, or was written "
                "without encryption; if you trust it, read it without encryption and write it again"
            )
        if len(stored) >= start and stored[len(MAGIC)] != VERSION:
            raise IntegrityError(
                f"value of key {short_repr(key)} has encryption format {stored[len(MAGIC)]}, and "
                f"this Holdfast supports {VERSION}; it is damaged, or needs a newer Holdfast"
            )
        end = start + (stored[start - 1] if len(stored) >= start else 0)
        key_id = stored[start:end].decode("ascii", "replace")
        if len(stored) < end + NONCE_BYTES + TAG_BYTES or not KEY_ID.fullmatch(key_id):
            raise IntegrityError(
                f"value of key {short_repr(key)} cannot be decrypted: it is damaged or truncated; "
                "restore it from a backup"
            )
        return key_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.keys!r} around {self.inner!r}>"


def encode_header(key_id: str) -> bytes:
    """Return the header, which precedes the nonce."""
    return MAGIC + bytes((VERSION, len(key_id))) + key_id.encode()


async def reencrypt(store: StateStore, prefix: str = "") -> int:
    """Encrypt all values with the first key again, and return how many used another one.

    ``store`` is an ``EncryptedStateStore`` or has one inside. Concurrent reads and writes are safe.
    It can be repeated after a failure; values that are already done are skipped.

    Raises:
        TypeError: The store has no encryption.
        IntegrityError: A value cannot be decrypted.
        StateStoreError: The store is read-only or failed.

    """
    if not store.writable:
        raise StateStoreError(f"{store!r} is read-only; open it without read_only to reencrypt")
    while not isinstance(store, EncryptedStateStore):
        if not isinstance(store, WrappedStateStore):
            raise TypeError(f"reencrypt takes a store with encryption, got {store!r}")
        if isinstance(store, PrefixedStateStore):
            prefix = store.prefix + prefix
        store = store.inner
    count = 0
    async for key in store.list(prefix):
        count += await _reencrypt_key(store, key)
    return count


async def _reencrypt_key(store: EncryptedStateStore, key: str) -> bool:
    """Encrypt a value with the first key, and return whether it used another one."""
    while True:
        entry = await store.inner.get(key)
        if entry is None or store._read_key_id(key, entry.value) == store.keys.ids[0]:
            return False
        try:
            plain = (await store._decode_entries({key: entry}))[key].value
            await store.put(key, plain, if_match=entry.etag)
            return True
        except ConflictError:
            # Changed or deleted since, perhaps by a writer that still uses the old key.
            continue
