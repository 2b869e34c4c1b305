"""``holdfast keys``: keys that documents are signed with, and the options that name them."""

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
    errors_told,
    fail,
    print_json,
    say,
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

TRUSTED = "HOLDFAST_TRUSTED_KEYS"
COLUMNS = (Column("name", least=6), Column("key_id", least=40))
PASSPHRASE = "HOLDFAST_SIGNING_PASSPHRASE"  # noqa: S105 - the name of a variable
SUFFIXES = (".key", ".pub")


def named_file(text: str | None) -> str | None:
    """A path as it was typed. An empty one, as of a variable that is not set, names no key."""
    if text == "":
        raise typer.BadParameter("it is empty, and names no key")
    return text


def named_files(texts: list[str] | None) -> list[str] | None:
    """Paths as they were typed, none of them empty."""
    for text in texts or ():
        named_file(text)
    return texts


TrustOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="FILE",
        help="Take only what this public key signed, or one of a folder's *.pub. Repeatable.",
        callback=named_files,
    ),
]
RequireOption = Annotated[
    bool,
    typer.Option(
        "--require-signature", help=f"Take only what a key of --trust or ${TRUSTED} signed."
    ),
]


# -------------------------------------------------------------------------------------- commands


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The files are NAME.key and NAME.pub.")
    ],
) -> None:
    """Make a key to sign documents with, and the public key that checks them.

    Example: holdfast keys new release
    """
    with errors_told(), keys_told():
        stem = name.removesuffix(".key").removesuffix(".pub")
        private, public = (Path(stem + suffix) for suffix in SUFFIXES)
        if not stem or stem.endswith(("/", os.sep)):
            raise typer.BadParameter(f"{name!r} names no file", param_hint="NAME")
        for path in (private, public):
            if os.path.lexists(path):
                fail(f"{path} is there already, and is not replaced", "choose another NAME")
        key = SigningKey.generate(private.stem)
        secret = passphrase()
        write(private, key.to_pem(passphrase=secret), 0o600)
        try:
            write(public, key.public.to_pem(), 0o644)
        except BaseException:
            private.unlink()
            raise
    locked = f"encrypted with ${PASSPHRASE}" if secret else "not encrypted"
    say(f"{private}  signs documents: keep it secret ({locked})")
    say(f"{public}  checks them: give it to whoever imports them")
    say(key.key_id)


def show(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="A key, public or private, or a folder; also several."),
    ],
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Show the ids of keys, by which documents name who signed them.

    Example: holdfast keys show release.pub
    """
    with errors_told(), keys_told():
        found = [key for file in files for key in keys_in(file)]
    if format is Format.json:
        print_json([{"name": key.name, "key_id": key.key_id} for key in found])
    else:
        print_table(COLUMNS, [[key.name, key.key_id] for key in found], "")


def keys_in(file: str) -> list[PublicKey]:
    """The public keys of a file or a folder, that of a private key too."""
    if Path(file).is_file() and b"PRIVATE KEY-----" in read_key_file(file):
        return [signing_key(file).public]
    return load_trusted_keys(file)


def write(path: Path, data: bytes, mode: int) -> None:
    """Write a file that must not be there, and that nobody else can read before it has its mode.

    What could not be written wholly does not stay: it would be in the way of the next try.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            sync_descriptor(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # which the system does not know of an open file
        raise


# --------------------------------------------------------------------------- for other commands


def signing_key(file: str) -> SigningKey:
    """The private key of a file."""
    with keys_told():
        return SigningKey.from_file(file, passphrase=passphrase())


def passphrase() -> bytes | None:
    """What private keys are encrypted with: the bytes of the variable, which may be no text."""
    text = os.environ.get(PASSPHRASE)
    return None if text is None else os.fsencode(text)


def required_keys(trust: list[str] | None, *, required: bool) -> list[PublicKey] | None:
    """The keys of which one must have signed, or None where nobody has to."""
    if not trust and not required:
        return None
    keys = known_keys(trust)
    if not keys:
        raise typer.BadParameter(
            f"no key is trusted: name it with --trust or ${TRUSTED}",
            param_hint="--require-signature",
        )
    return keys


def known_keys(trust: list[str] | None = None) -> list[PublicKey]:
    """The keys that the command line names, or the environment without it."""
    paths = trust or [each for each in os.environ.get(TRUSTED, "").split(os.pathsep) if each]
    with keys_told():
        return load_trusted_keys(*paths)


def signers_text(key_ids: Iterable[str], keys: Iterable[PublicKey]) -> str:
    """Who signed, by ids and by names."""
    names = {key.key_id: key.name for key in keys}
    return ", ".join(
        f"{each} ({names[each]})" if names.get(each) else each for each in dict.fromkeys(key_ids)
    )


@contextmanager
def keys_told() -> Iterator[None]:
    """End the command with a hint for keys where a key is the matter."""
    try:
        yield
    except KeyFileError as error:
        fail(str(error), "holdfast keys new NAME makes a key, and keys show FILE looks at one")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}", "choose another place for the key")


@contextmanager
def signatures_told(file: str) -> Iterator[None]:
    """End the command with a hint for signatures where a signature is the matter."""
    try:
        yield
    except SignatureError as error:
        fail(
            f"{file}: {error}",
            "holdfast state show tells who signed a file, and holdfast keys show whose key it is",
        )
