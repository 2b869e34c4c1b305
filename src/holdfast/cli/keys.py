"""``holdfast keys``: create and show keys that sign documents."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.console import (
    Format,
    FormatOption,
    fail,
    print_json,
    print_line,
    report_errors,
)
from holdfast.cli.tables import Column, print_table
from holdfast.documents.signing import (
    KeyFileError,
    PublicKey,
    SignatureError,
    SigningKey,
    load_trusted_keys,
)
from holdfast.documents.signing_keys import read_key_file
from holdfast.stores.local import sync_descriptor

TRUST_VARIABLE = "HOLDFAST_TRUSTED_KEYS"
COLUMNS = (Column("name", least=6), Column("key_id", least=40))
PASSPHRASE_VARIABLE = "HOLDFAST_SIGNING_PASSPHRASE"  # noqa: S105 - the name of a variable
SUFFIXES = (".key", ".pub")


def require_file_name(text: str | None) -> str | None:
    """Reject an empty path, such as the value of an unset variable."""
    if text == "":
        raise typer.BadParameter("must not be empty")
    return text


def require_file_names(texts: list[str] | None) -> list[str] | None:
    """Reject empty paths."""
    for text in texts or ():
        require_file_name(text)
    return texts


TrustOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="FILE",
        help="Accept only documents signed by this public key, or by a folder's *.pub. Repeatable.",
        callback=require_file_names,
    ),
]
RequireOption = Annotated[
    bool,
    typer.Option(
        "--require-signature", help=f"Accept only documents signed by --trust or ${TRUST_VARIABLE}."
    ),
]


# -------------------------------------------------------------------------------------- commands


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Writes NAME.key and NAME.pub.")],
) -> None:
    """Create a private key that signs documents and the public key that verifies them.

    Example: holdfast keys new release
    """
    with report_errors(), report_key_errors():
        stem = name.removesuffix(".key").removesuffix(".pub")
        private, public = (Path(stem + suffix) for suffix in SUFFIXES)
        if not stem or stem.endswith(("/", os.sep)):
            raise typer.BadParameter(f"invalid name {name!r}", param_hint="NAME")
        for path in (private, public):
            if os.path.lexists(path):
                fail(f"{path} already exists", "choose another NAME")
        key = SigningKey.generate(private.stem)
        secret = read_passphrase()
        write_key_file(private, key.to_pem(passphrase=secret), 0o600)
        try:
            write_key_file(public, key.public.to_pem(), 0o644)
        except BaseException:
            private.unlink()
            raise
    locked = f"encrypted with ${PASSPHRASE_VARIABLE}" if secret else "not encrypted"
    print_line(f"{private}  private key: keep it secret ({locked})")
    print_line(f"{public}  public key: share it with those who import your documents")
    print_line(key.key_id)


def show(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Public or private keys, or folders."),
    ],
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Show the ids of keys, as they appear in signed documents.

    Example: holdfast keys show release.pub
    """
    with report_errors(), report_key_errors():
        found = [key for file in files for key in load_public_keys(file)]
    if format is Format.json:
        print_json([{"name": key.name, "key_id": key.key_id} for key in found])
    else:
        print_table(COLUMNS, [[key.name, key.key_id] for key in found], "")


def load_public_keys(file: str) -> list[PublicKey]:
    """Return the public keys of a file or a folder, including those of private keys."""
    if Path(file).is_file() and b"PRIVATE KEY-----" in read_key_file(file):
        return [load_signing_key(file).public]
    return load_trusted_keys(file)


def write_key_file(path: Path, data: bytes, mode: int) -> None:
    """Create a file with a mode; remove it again if it cannot be written completely."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            sync_descriptor(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # not set for an open descriptor
        raise


# --------------------------------------------------------------------------- for other commands


def load_signing_key(file: str) -> SigningKey:
    """Load a private key."""
    with report_key_errors():
        return SigningKey.from_file(file, passphrase=read_passphrase())


def read_passphrase() -> bytes | None:
    """Return the passphrase from the environment as bytes; it need not be valid text."""
    text = os.environ.get(PASSPHRASE_VARIABLE)
    return None if text is None else os.fsencode(text)


def load_required_keys(trust: list[str] | None, *, required: bool) -> list[PublicKey] | None:
    """Return the keys of which one must have signed; None if no signature is required."""
    if not trust and not required:
        return None
    keys = load_known_keys(trust)
    if not keys:
        raise typer.BadParameter(
            f"no trusted key; pass --trust or set ${TRUST_VARIABLE}",
            param_hint="--require-signature",
        )
    return keys


def load_known_keys(trust: list[str] | None = None) -> list[PublicKey]:
    """Return the trusted keys of the command line, else of the environment."""
    paths = trust or [each for each in os.environ.get(TRUST_VARIABLE, "").split(os.pathsep) if each]
    with report_key_errors():
        return load_trusted_keys(*paths)


def format_signers(key_ids: Iterable[str], keys: Iterable[PublicKey]) -> str:
    """Return the signers by id and name."""
    names = {key.key_id: key.name for key in keys}
    return ", ".join(
        f"{each} ({names[each]})" if names.get(each) else each for each in dict.fromkeys(key_ids)
    )


@contextmanager
def report_key_errors() -> Iterator[None]:
    """Report key errors with a hint."""
    try:
        yield
    except KeyFileError as error:
        fail(
            str(error),
            "create a key with holdfast keys new NAME; inspect one with holdfast keys show FILE",
        )
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}", "choose another path for the key")


@contextmanager
def report_signature_errors(file: str) -> Iterator[None]:
    """Report signature errors with a hint."""
    try:
        yield
    except SignatureError as error:
        fail(
            f"{file}: {error}",
            "see who signed with holdfast state show, and key ids with holdfast keys show",
        )
