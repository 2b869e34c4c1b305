"""Keys that documents are signed and checked with: Ed25519, in PEM files.

A private key is PKCS 8, as ``openssl genpkey -algorithm ed25519`` writes it too. A public key is
known by its id, the SHA-256 of its DER form, which ``openssl`` computes as well.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from holdfast.errors import HoldfastError, short_repr
from holdfast.extras import require_extra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

logger = logging.getLogger(__name__)

T = TypeVar("T")

RAW_BYTES = 32
SPKI = bytes.fromhex("302a300506032b6570032100")
"""What stands before the 32 bytes of an Ed25519 key in DER (RFC 8410)."""
MAX_KEY_FILE_BYTES = 1 << 20
MAX_PASSPHRASE_BYTES = 1023
"""In bytes: what encrypts a key takes no more."""
PEM_BOUNDARY = re.compile(rb"-----(BEGIN|END) ([A-Z0-9 ]+)-----")
PUBLIC, PRIVATE, ENCRYPTED = "PUBLIC KEY", "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"
PUBLIC_SUFFIX = ".pub"
PASSPHRASE_HINT = "the command line takes it from $HOLDFAST_SIGNING_PASSPHRASE"


class KeyFileError(HoldfastError, ValueError):
    """A file is not the key that was asked for."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that signatures are checked with. Whoever has it can sign nothing."""

    raw: bytes
    """Its 32 bytes."""
    name: str = field(default="", compare=False)
    """What its owner or reader calls it: the name of its file."""

    def __post_init__(self) -> None:
        if not isinstance(self.raw, bytes) or len(self.raw) != RAW_BYTES:
            raise KeyFileError(f"an Ed25519 key has {RAW_BYTES} bytes, not {short_repr(self.raw)}")

    @property
    def key_id(self) -> str:
        """``sha256:…`` of the key in DER, by which documents name it."""
        return "sha256:" + hashlib.sha256(SPKI + self.raw).hexdigest()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> PublicKey:
        """The one key of a PEM file, as ``holdfast keys new`` or ``openssl pkey -pubout`` writes.

        `trusted_keys` reads files of several, and folders.
        """
        found = decode_public_keys(read_key_file(path), str(path), Path(path).stem)
        if len(found) != 1:
            raise KeyFileError(f"{path} has {len(found)} keys, and one is needed")
        return found[0]

    @classmethod
    def from_pem(cls, data: bytes, name: str = "") -> PublicKey:
        """The first key of a PEM text."""
        return decode_public_keys(data, "the PEM text", name)[0]

    def to_pem(self) -> bytes:
        """The key as PEM."""
        text = base64.b64encode(SPKI + self.raw).decode()
        return f"-----BEGIN {PUBLIC}-----\n{text}\n-----END {PUBLIC}-----\n".encode()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether a signature of a message is this key's."""
        with require_extra("signing"):
            from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
            from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


class SigningKey:
    """A private key. Its repr says which it is, and nothing of what it holds."""

    __slots__ = ("_key", "public")

    public: PublicKey
    """The key that checks what this one signs."""

    def __init__(self, key: Ed25519PrivateKey, name: str = "") -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw(), name)

    def __repr__(self) -> str:
        return f"<SigningKey {self.key_id}>"

    @property
    def key_id(self) -> str:
        """That of its public key."""
        return self.public.key_id

    @classmethod
    def generate(cls, name: str = "") -> Self:
        """A new key."""
        with require_extra("signing"):
            from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
        return cls(ed25519.Ed25519PrivateKey.generate(), name)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, passphrase: str | bytes | None = None
    ) -> Self:
        """The key of a PEM file (PKCS 8). A file that others can read is warned of."""
        data = read_key_file(path)
        found = decode_private_key(data, str(path), passphrase)
        if os.name == "posix" and (mode := Path(path).stat().st_mode) & 0o077:
            logger.warning(
                "the private key %s can be read by others (mode %o): chmod 600 %s",
                path,
                stat.S_IMODE(mode),
                path,
            )
        return cls(found, Path(path).stem)

    @classmethod
    def from_pem(
        cls, data: bytes, *, passphrase: str | bytes | None = None, name: str = ""
    ) -> Self:
        """The key of a PEM text. A passphrase is not looked at where it needs none."""
        return cls(decode_private_key(data, "the PEM text", passphrase), name)

    def to_pem(self, *, passphrase: str | bytes | None = None) -> bytes:
        """The key as PEM (PKCS 8), encrypted with a passphrase if there is one."""
        from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415

        how: forms.KeySerializationEncryption = forms.NoEncryption()
        if passphrase:
            secret = encode_passphrase(passphrase)
            if len(secret) > MAX_PASSPHRASE_BYTES:
                raise KeyFileError(
                    f"the passphrase has more than {MAX_PASSPHRASE_BYTES:,} bytes, and a key cannot "
                    f"be encrypted with it: {PASSPHRASE_HINT}"
                )
            how = forms.BestAvailableEncryption(secret)
        return self._key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, how)

    def sign(self, message: bytes) -> bytes:
        """The signature of a message, 64 bytes."""
        return self._key.sign(message)


def load_trusted_keys(*paths: str | os.PathLike[str]) -> list[PublicKey]:
    """The public keys of files, which may have several, and of all ``.pub`` files of folders."""
    return [
        key
        for path in paths
        for file in list_key_files(require_path(path))
        for key in decode_public_keys(read_key_file(file), str(file), file.stem)
    ]


# -------------------------------------------------------------------------------- files of keys


def require_path(path: str | os.PathLike[str]) -> Path:
    """A path that names something. An empty one would be the current folder, and all its keys."""
    if not os.fspath(path):
        raise KeyFileError("the path of a key is empty, and names no file and no folder")
    return Path(path)


def list_key_files(path: Path) -> list[Path]:
    """A file, or those of a folder that are named as public keys."""
    try:
        if not path.is_dir():
            return [path]
        found = sorted(each for each in path.iterdir() if each.suffix == PUBLIC_SUFFIX)
    except OSError as error:
        raise unreadable_key_error(path, error) from error
    if not found:
        raise KeyFileError(f"the folder {path} has no file *{PUBLIC_SUFFIX}: no key is trusted")
    return found


def read_key_file(path: str | os.PathLike[str]) -> bytes:
    """What a file of keys has."""
    try:
        with require_path(path).open("rb") as file:
            data = file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise unreadable_key_error(path, error) from error
    if len(data) > MAX_KEY_FILE_BYTES:
        raise KeyFileError(f"{path} has more than {MAX_KEY_FILE_BYTES:,} bytes: it is no key")
    return data


def unreadable_key_error(path: str | os.PathLike[str], error: OSError) -> KeyFileError:
    """The error for a file that the system does not give."""
    return KeyFileError(f"the key file {path} cannot be read: {error.strerror or error}")


def split_pem(data: bytes, source: str) -> list[tuple[str, bytes]]:
    """The PEM blocks of a text, each with its label."""
    found = []
    begin: re.Match[bytes] | None = None
    # From edge to edge: to look for the end of each block anew would take the square of the time.
    for edge in PEM_BOUNDARY.finditer(data):
        if begin is None:
            begin = edge if edge[1] == b"BEGIN" else None
        elif edge[1] == b"BEGIN" or edge[2] != begin[2]:
            raise truncated_key_error(source)
        else:
            found.append((edge[2].decode(), data[begin.start() : edge.end()] + b"\n"))
            begin = None
    if begin is not None:
        raise truncated_key_error(source)
    if not found:
        raise KeyFileError(
            f"{source} is no key in PEM, as `holdfast keys new` or `openssl genpkey -algorithm "
            "ed25519` writes it"
        )
    return found


def truncated_key_error(source: str) -> KeyFileError:
    """The error for a block that has no end."""
    return KeyFileError(
        f"{source} cannot be read as a key: a block in it has no end, so it is damaged or cut short"
    )


def decode_public_keys(data: bytes, source: str, name: str) -> list[PublicKey]:
    """All public keys of a text, if they are the kind that documents are checked with."""
    with require_extra("signing"):
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415
    found = []
    for label, block in split_pem(data, source):
        if label.endswith(PRIVATE):
            raise KeyFileError(
                f"{source} is a private key, and a public one is needed: take the file "
                f"{PUBLIC_SUFFIX} that was made with it, or what `openssl pkey -pubout` makes of it"
            )
        if label != PUBLIC:
            raise wrong_key_type_error(source, label)
        key = load_pem(partial(load_pem_public_key, block), source)
        if not isinstance(key, ed25519.Ed25519PublicKey):
            raise wrong_key_type_error(source, key)
        found.append(PublicKey(key.public_bytes_raw(), name))
    return found


def decode_private_key(
    data: bytes, source: str, passphrase: str | bytes | None
) -> Ed25519PrivateKey:
    """The private key of a text, if it is the kind that documents are signed with."""
    with require_extra("signing"):
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            load_pem_private_key,
        )
    label, block = split_pem(data, source)[0]
    if label == PUBLIC:
        raise KeyFileError(f"{source} is a public key, and signing needs the private one")
    if label == ENCRYPTED and not passphrase:
        raise KeyFileError(f"{source} is encrypted, and there is no passphrase: {PASSPHRASE_HINT}")
    if label not in (PRIVATE, ENCRYPTED):
        raise wrong_key_type_error(source, label)
    secret = encode_passphrase(passphrase) if label == ENCRYPTED and passphrase else None
    key = load_pem(partial(load_pem_private_key, block, secret), source)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise wrong_key_type_error(source, key)
    return key


def load_pem(load: Callable[[], T], source: str) -> T:
    """What a PEM block holds, or an error that names the file and nothing of what is in it."""
    with require_extra("signing"):
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    try:
        return load()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyFileError(
            f"{source} cannot be read as a key: it is damaged, or its passphrase is another"
        ) from None


def wrong_key_type_error(source: str, key: object) -> KeyFileError:
    """The error for a key that is another than Ed25519."""
    kind = key if isinstance(key, str) else type(key).__name__.strip("_")
    return KeyFileError(
        f"{source} is another kind of key ({kind}): documents are signed with Ed25519 in PEM, "
        "as `holdfast keys new` makes it"
    )


def encode_passphrase(passphrase: str | bytes) -> bytes:
    """A passphrase as the bytes that encrypt."""
    if isinstance(passphrase, bytes):
        return passphrase
    try:
        return passphrase.encode()
    except UnicodeEncodeError:
        # Python's own error shows what it stumbled on, which is part of the secret.
        raise KeyFileError("the passphrase is no text in UTF-8: give it as bytes") from None
