"""What is imported from packages that not everybody installs: there, or an error that helps.

The name of the package that is missing is seldom the name of the extra that brings it, so the
command that installs it is part of the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import HoldfastError


class MissingExtraError(HoldfastError, ModuleNotFoundError):
    """A module of Holdfast was imported, and what it needs is not installed.

    ``extra`` is the extra that brings it, as in ``pip install 'holdfast[extra]'``.
    """

    extra = ""


@contextmanager
def require_extra(name: str) -> Iterator[None]:
    """Around imports that need an extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "holdfast":
            raise
        missing = MissingExtraError(
            f"this part of Holdfast needs the package {error.name}, which is not installed: "
            f"pip install 'holdfast[{name}]'",
            name=error.name,
        )
        missing.extra = name
        raise missing from error
