"""Ed25519 keys in PEM files, for signing documents and verifying signatures.

A private key is PKCS 8, as ``openssl genpkey -algorithm ed25519`` writes it. The id of a public key
is the SHA-256 of its DER encoding, which ``openssl`` can compute.
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
"""The DER prefix of an Ed25519 public key (RFC 8410)."""
MAX_KEY_FILE_BYTES = 1 << 20
MAX_PASSPHRASE_BYTES = 1023
"""The limit of the key encryption."""
PEM_BOUNDARY = re.compile(rb"-----(BEGIN|END) ([A-Z0-9 ]+)-----")
PUBLIC, PRIVATE, ENCRYPTED = "PUBLIC KEY", "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"
PUBLIC_SUFFIX = ".pub"
PASSPHRASE_HINT = "the command line reads it from $HOLDFAST_SIGNING_PASSPHRASE"  # noqa: S105


class KeyFileError(HoldfastError, ValueError):
    """A file is not a valid key, or not of the right kind."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies signatures. It cannot sign."""

    raw: bytes
    """The 32 bytes of the key."""
    name: str = field(default="", compare=False)
    """A name for messages: that of its file."""

    def __post_init__(self) -> None:
        if not isinstance(self.raw, bytes) or len(self.raw) != RAW_BYTES:
            raise KeyFileError(
                f"an Ed25519 key must have {RAW_BYTES} bytes, got {short_repr(self.raw)}"
            )

    @property
    def key_id(self) -> str:
        """The id by which documents refer to the key: ``sha256:…`` of its DER encoding."""
        return "sha256:" + hashlib.sha256(SPKI + self.raw).hexdigest()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> PublicKey:
        """Read a PEM file with one key, as ``holdfast keys new`` or ``openssl pkey`` writes it.

        `load_trusted_keys` reads files with several keys, and directories.

        Raises:
            KeyFileError: It cannot be read, or does not have exactly one public key.

        """
        found = decode_public_keys(read_key_file(path), str(path), Path(path).stem)
        if len(found) != 1:
            raise KeyFileError(f"{path} has {len(found)} keys; expected one")
        return found[0]

    @classmethod
    def from_pem(cls, data: bytes, name: str = "") -> PublicKey:
        """Return the first key of a PEM text.

        Raises:
            KeyFileError: It is not a public key.

        """
        return decode_public_keys(data, "the PEM text", name)[0]

    def to_pem(self) -> bytes:
        """Return the key as PEM."""
        text = base64.b64encode(SPKI + self.raw).decode()
        return f"-----BEGIN {PUBLIC}-----\n{text}\n-----END {PUBLIC}-----\n".encode()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether a signature of a message was made with this key."""
        with require_extra("signing"):
            from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
            from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


class SigningKey:
    """A private key. Its repr shows only the key id."""

    __slots__ = ("_key", "public")

    public: PublicKey
    """The public key, which verifies what this key signs."""

    def __init__(self, key: Ed25519PrivateKey, name: str = "") -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw(), name)

    def __repr__(self) -> str:
        return f"<SigningKey {self.key_id}>"

    @property
    def key_id(self) -> str:
        """The id of the public key."""
        return self.public.key_id

    @classmethod
    def generate(cls, name: str = "") -> Self:
        """Generate a new key."""
        with require_extra("signing"):
            from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
        return cls(ed25519.Ed25519PrivateKey.generate(), name)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, passphrase: str | bytes | None = None
    ) -> Self:
        """Read a PEM file (PKCS 8); log a warning if other users can read it.

        Raises:
            KeyFileError: It cannot be read, is not a private key, or needs another passphrase.

        """
        data = read_key_file(path)
        found = decode_private_key(data, str(path), passphrase)
        if os.name == "posix" and (mode := Path(path).stat().st_mode) & 0o077:
            logger.warning(
                "private key %s is readable by other users (mode %o); run chmod 600 %s",
                path,
                stat.S_IMODE(mode),
                path,
            )
        return cls(found, Path(path).stem)

    @classmethod
    def from_pem(
        cls, data: bytes, *, passphrase: str | bytes | None = None, name: str = ""
    ) -> Self:
        """Return the key of a PEM text. The passphrase is ignored if the key is not encrypted.

        Raises:
            KeyFileError: It is not a private key, or needs another passphrase.

        """
        return cls(decode_private_key(data, "the PEM text", passphrase), name)

    def to_pem(self, *, passphrase: str | bytes | None = None) -> bytes:
        """Return the key as PEM (PKCS 8), encrypted if a passphrase is given.

        Raises:
            KeyFileError: The passphrase is too long.

        """
        from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415

        how: forms.KeySerializationEncryption = forms.NoEncryption()
        if passphrase:
            secret = encode_passphrase(passphrase)
            if len(secret) > MAX_PASSPHRASE_BYTES:
                raise KeyFileError(
                    f"the passphrase has more than {MAX_PASSPHRASE_BYTES:,} bytes; "
                    f"{PASSPHRASE_HINT}"
                )
            how = forms.BestAvailableEncryption(secret)
        return self._key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, how)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes."""
        return self._key.sign(message)


def load_trusted_keys(*paths: str | os.PathLike[str]) -> list[PublicKey]:
    """Read the public keys of files, and of all ``.pub`` files in directories.

    Raises:
        KeyFileError: A file cannot be read or is not a public key, or a directory has none.

    """
    return [
        key
        for path in paths
        for file in list_key_files(require_path(path))
        for key in decode_public_keys(read_key_file(file), str(file), file.stem)
    ]


# ------------------------------------------------------------------------------------- key files


def require_path(path: str | os.PathLike[str]) -> Path:
    """Return a path that is not empty: the empty path would be the current directory."""
    if not os.fspath(path):
        raise KeyFileError("the path of a key is empty; name a file or a directory")
    return Path(path)


def list_key_files(path: Path) -> list[Path]:
    """Return a file, or the public key files of a directory."""
    try:
        if not path.is_dir():
            return [path]
        found = sorted(each for each in path.iterdir() if each.suffix == PUBLIC_SUFFIX)
    except OSError as error:
        raise unreadable_key_error(path, error) from error
    if not found:
        raise KeyFileError(
            f"the directory {path} has no *{PUBLIC_SUFFIX} file, so no key would be trusted"
        )
    return found


def read_key_file(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a key file.

    Raises:
        KeyFileError: It cannot be read, or is too large.

    """
    try:
        with require_path(path).open("rb") as file:
            data = file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise unreadable_key_error(path, error) from error
    if len(data) > MAX_KEY_FILE_BYTES:
        raise KeyFileError(f"{path} is not a key: it has more than {MAX_KEY_FILE_BYTES:,} bytes")
    return data


def unreadable_key_error(path: str | os.PathLike[str], error: OSError) -> KeyFileError:
    """Return the error for a key file that cannot be read."""
    return KeyFileError(f"cannot read key file {path}: {error.strerror or error}")


def split_pem(data: bytes, source: str) -> list[tuple[str, bytes]]:
    """Return the PEM blocks of a text with their labels."""
    found = []
    begin: re.Match[bytes] | None = None
    # One pass over all boundaries: a search for the end of each block would be quadratic.
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
            f"{source} is not a key in PEM; create one with `holdfast keys new` or `openssl "
            "genpkey -algorithm ed25519`"
        )
    return found


def truncated_key_error(source: str) -> KeyFileError:
    """Return the error for a PEM block without an end."""
    return KeyFileError(
        f"{source} is not a valid key: a PEM block has no end, so it is damaged or truncated"
    )


def decode_public_keys(data: bytes, source: str, name: str) -> list[PublicKey]:
    """Return all public keys of a PEM text."""
    with require_extra("signing"):
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415
    found = []
    for label, block in split_pem(data, source):
        if label.endswith(PRIVATE):
            raise KeyFileError(
                f"{source} is a private key; use the public key, from its {PUBLIC_SUFFIX} file or "
                "`openssl pkey -pubout`"
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
    """Return the private key of a PEM text."""
    with require_extra("signing"):
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            load_pem_private_key,
        )
    label, block = split_pem(data, source)[0]
    if label == PUBLIC:
        raise KeyFileError(f"{source} is a public key; signing needs the private key")
    if label == ENCRYPTED and not passphrase:
        raise KeyFileError(f"{source} is encrypted and needs a passphrase; {PASSPHRASE_HINT}")
    if label not in (PRIVATE, ENCRYPTED):
        raise wrong_key_type_error(source, label)
    secret = encode_passphrase(passphrase) if label == ENCRYPTED and passphrase else None
    key = load_pem(partial(load_pem_private_key, block, secret), source)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise wrong_key_type_error(source, key)
    return key


def load_pem(load: Callable[[], T], source: str) -> T:
    """Load a PEM block; an error names the file, but nothing of its content."""
    with require_extra("signing"):
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    try:
        return load()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyFileError(
            f"{source} is not a valid key: it is damaged, or the passphrase is wrong"
        ) from None


def wrong_key_type_error(source: str, key: object) -> KeyFileError:
    """Return the error for a key that is not Ed25519."""
    kind = key if isinstance(key, str) else type(key).__name__.strip("_")
    return KeyFileError(
        f"unsupported key type {kind} in {source}; documents are signed with Ed25519 keys, which "
        "`holdfast keys new` creates"
    )


def encode_passphrase(passphrase: str | bytes) -> bytes:
    """Return a passphrase as bytes."""
    if isinstance(passphrase, bytes):
        return passphrase
    try:
        return passphrase.encode()
    except UnicodeEncodeError:
        # Python's error would show part of the secret.
        raise KeyFileError("the passphrase is not UTF-8; pass it as bytes") from None
