"""Check that the framework of an adapter is installed in a supported version.

An adapter checks before it imports the framework, so that another version fails with a clear error
instead of an exception from inside the framework.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from holdfast.extras import MissingExtraError, require_extra


def import_requirement(module: str, extra: str) -> ModuleType:
    """Import a module of the framework.

    Raises:
        MissingExtraError: It is not installed, or cannot be imported.

    """
    with require_extra(extra):
        return import_module(module)


def require_version(
    distribution: str, at_least: str, extra: str, *, before: str | None = None
) -> None:
    """Check that the installed version of the framework is supported.

    Raises:
        MissingExtraError: It is not installed, older than ``at_least``, or not older than
            ``before``.

    """
    try:
        installed = version(distribution)
    except PackageNotFoundError as error:
        raise MissingExtraError(extra, name=distribution) from error
    found = parse_release(installed)
    if found < parse_release(at_least) or (before is not None and found >= parse_release(before)):
        wanted = f"{at_least} or newer" if before is None else f">={at_least},<{before}"
        raise MissingExtraError(
            extra,
            f"needs {distribution} {wanted}, but {installed} is installed",
            name=distribution,
        )


def parse_release(text: str) -> tuple[int, ...]:
    """Return the release numbers of a version, without suffixes such as rc1 or .dev2."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()
