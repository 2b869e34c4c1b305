"""Values that only the holder of a key can read, and that nobody can change or move unseen.

AES-256-GCM. What is kept of a value:

    fa 48 46 45   magic
    01            version of this form
    n             length of the key's id, then the id in UTF-8
    12 bytes      nonce, random
    the rest      ciphertext, and a tag of 16 bytes

Everything before the nonce, and the name that the value is stored under, is authenticated with it.
So a value that was changed, or moved to another name, is refused. Reading is strict: what was not
written here is an error and never passed on, or else whoever can write to the store could put plain
text in place of what was encrypted.
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
"""What the cipher takes at once."""

KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, repr=False)
class EncryptionKeys:
    """Secrets of 32 bytes by their ids: the first one writes, any of them reads.

    An id is 1 to 64 of the characters ``A-Z a-z 0-9 . _ -``, stored with each value in clear.
    """

    secrets: Mapping[str, bytes]

    def __post_init__(self) -> None:
        if not isinstance(self.secrets, Mapping):
            raise TypeError("encryption keys are a mapping of ids to secrets of 32 bytes")
        if not self.secrets:
            raise ValueError("encryption needs at least one key")
        for key_id, secret in self.secrets.items():
            if not isinstance(key_id, str) or not KEY_ID.fullmatch(key_id):
                raise ValueError(
                    "the id of an encryption key is 1 to 64 of the characters A-Z a-z 0-9 . _ -"
                )
            if not isinstance(secret, bytes):
                raise TypeError(
                    f"the encryption key {key_id} is bytes, not {type(secret).__name__}"
                )
            if len(secret) != SECRET_BYTES:
                raise ValueError(
                    f"the encryption key {key_id} has {len(secret)} bytes: it needs {SECRET_BYTES}"
                )
        object.__setattr__(self, "secrets", MappingProxyType(dict(self.secrets)))

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, the one that writes first."""
        return tuple(self.secrets)

    def __repr__(self) -> str:
        return f"EncryptionKeys({', '.join(self.ids)})"


def new_key() -> str:
    """A new key as text for the environment variable, ``id:secret``. Keep it as a password."""
    secret = secrets.token_bytes(SECRET_BYTES)
    return f"{derive_key_id(secret)}:{base64.b64encode(secret).decode()}"


def derive_key_id(secret: bytes) -> str:
    """The id of a key that was given none. It tells nothing of the secret."""
    return hashlib.sha256(b"holdfast: the id of an encryption key\0" + secret).hexdigest()[:12]


def keys_from_environment(name: str) -> EncryptionKeys:
    """The keys that an environment variable holds: ``id:secret`` each, with commas between.

    A secret is 32 bytes in base64. One without an id gets one that is derived from it.
    """
    if not VARIABLE_NAME.fullmatch(name):
        # Whoever gives the key in place of the variable's name does not find it in a log.
        raise StateStoreError(
            "the option encrypt is the name of an environment variable that holds the key, "
            "not the key itself: capital letters, digits and _, as in HOLDFAST_KEYS"
        )
    text = os.environ.get(name, "")
    if not text.strip():
        raise StateStoreError(
            f"the environment variable {name}, which is to hold the encryption keys, is not set: "
            "set it to what holdfast.stores.wrappers.encryption.new_key() gives"
        )
    found: dict[str, bytes] = {}
    for number, item in enumerate(text.split(","), start=1):
        key_id, secret = parse_key(item.strip(), f"key {number} in the environment variable {name}")
        if key_id in found:
            raise StateStoreError(f"the environment variable {name} has the key id {key_id} twice")
        found[key_id] = secret
    return EncryptionKeys(found)


def parse_key(item: str, where: str) -> tuple[str, bytes]:
    """An id and its secret. No part of what cannot be read is repeated: it may be the secret."""
    key_id, colon, text = item.rpartition(":")
    if colon and not KEY_ID.fullmatch(key_id):
        raise StateStoreError(
            f"{where} has a bad id: before the colon stand 1 to 64 of A-Z a-z 0-9 . _ -"
        )
    # Both alphabets, with or without the padding: what tools that make keys give.
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        secret = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise StateStoreError(
            f"{where} is not base64: a key is id:secret, as new_key() gives it, and a comma stands "
            "between two"
        ) from None
    if len(secret) != SECRET_BYTES:
        raise StateStoreError(
            f"{where} has {len(secret)} bytes: it needs {SECRET_BYTES}, as new_key() gives them"
        )
    return (key_id if colon else derive_key_id(secret)), secret


class EncryptedStateStore(TransformedStateStore):
    """Keeps values encrypted. Keys, the sizes of values and when they change are not hidden."""

    encrypts = True

    def __init__(self, inner: StateStore, keys: EncryptionKeys) -> None:
        super().__init__(inner)
        if not isinstance(keys, EncryptionKeys):
            # What else was given may be the secret.
            raise TypeError(f"the keys are an EncryptionKeys, not a {type(keys).__name__}")
        self.keys = keys
        self._ciphers = {key_id: AESGCM(secret) for key_id, secret in keys.secrets.items()}

    def _stored(self, key: str, value: bytes) -> bytes:
        if len(value) > MAX_VALUE_BYTES:
            raise StateStoreError(
                f"the value for the key {short_repr(key)} has {len(value):,} bytes; encryption takes "
                f"{MAX_VALUE_BYTES:,} at most: divide it among several keys"
            )
        key_id = self.keys.ids[0]
        head = encode_header(key_id)
        nonce = secrets.token_bytes(NONCE_BYTES)
        return head + nonce + self._ciphers[key_id].encrypt(nonce, value, head + key.encode())

    def _given(self, key: str, stored: bytes) -> bytes:
        key_id = self._key_id(key, stored)
        if key_id not in self._ciphers:
            raise IntegrityError(
                f"the value of the key {short_repr(key)} was encrypted with the key {key_id}, which is "
                f"not at hand; there are {', '.join(self.keys.ids)}: add it after them"
            )
        head = encode_header(key_id)
        nonce, sealed = stored[len(head) :][:NONCE_BYTES], stored[len(head) + NONCE_BYTES :]
        try:
            return self._ciphers[key_id].decrypt(nonce, sealed, head + key.encode())
        except InvalidTag:
            raise IntegrityError(
                f"the value of the key {short_repr(key)} cannot be decrypted: it was damaged, or moved "
                f"here from another key, or the encryption key {key_id} had another secret when it "
                "was written. Restore it from a backup, or find that secret"
            ) from None

    def _key_id(self, key: str, stored: bytes) -> str:
        """The id of the key that a value was encrypted with, or IntegrityError."""
        start = len(MAGIC) + 2
        if not stored.startswith(MAGIC):
            raise IntegrityError(
                f"the value of the key {short_repr(key)} is not encrypted, though everything in this "
                "store is to be: it was damaged, or written without encryption. To trust it, read "
                "it without encryption and write it again with"
            )
        if len(stored) >= start and stored[len(MAGIC)] != VERSION:
            raise IntegrityError(
                f"the value of the key {short_repr(key)} has the encrypted form {stored[len(MAGIC)]}, "
                f"and this Holdfast knows {VERSION}: it was damaged, or needs a newer Holdfast"
            )
        end = start + (stored[start - 1] if len(stored) >= start else 0)
        key_id = stored[start:end].decode("ascii", "replace")
        if len(stored) < end + NONCE_BYTES + TAG_BYTES or not KEY_ID.fullmatch(key_id):
            raise IntegrityError(
                f"the value of the key {short_repr(key)} cannot be decrypted: it was damaged or cut "
                "short. Restore it from a backup"
            )
        return key_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.keys!r} around {self.inner!r}>"


def encode_header(key_id: str) -> bytes:
    """What stands before the nonce."""
    return MAGIC + bytes((VERSION, len(key_id))) + key_id.encode()


async def reencrypt(store: StateStore, prefix: str = "") -> int:
    """Write again, with the first key, what is under any other; gives how many values that were.

    ``store`` is an ``EncryptedStateStore`` or has one inside. Others may read and write meanwhile.
    It may be repeated after a failure: what is done is not done again.
    """
    if not store.writable:
        raise StateStoreError(f"{store!r} takes no writes: open it without read_only to reencrypt")
    while not isinstance(store, EncryptedStateStore):
        if not isinstance(store, WrappedStateStore):
            raise TypeError(f"reencrypt takes a store with encryption, and {store!r} has none")
        if isinstance(store, PrefixedStateStore):
            prefix = store.prefix + prefix
        store = store.inner
    done = 0
    async for key in store.list(prefix):
        done += await _reencrypted(store, key)
    return done


async def _reencrypted(store: EncryptedStateStore, key: str) -> bool:
    """Whether a value had to be written again, and was."""
    while True:
        entry = await store.inner.get(key)
        if entry is None or store._key_id(key, entry.value) == store.keys.ids[0]:
            return False
        try:
            plain = (await store._all_given({key: entry}))[key].value
            await store.put(key, plain, if_match=entry.etag)
            return True
        except ConflictError:
            # Changed or removed meanwhile, perhaps by one who writes with the old key: look again.
            continue
