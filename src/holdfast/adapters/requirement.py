"""The framework that an adapter needs: there and new enough, or one error that says what to do.

An adapter asks before it imports anything of the framework, so that nobody meets an error from the
inside of a package whose version was never meant.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from holdfast.errors import HoldfastError


class RequirementError(HoldfastError, ImportError):
    """What an adapter needs is not installed, or too old, or cannot be loaded."""


def import_requirement(module: str, extra: str) -> ModuleType:
    """A module of the framework, or the command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        problem = f"needs the package {error.name}, which is not installed"
        raise RequirementError(f"{adapter_name(extra)} {problem}: {install_hint(extra)}") from error
    except ImportError as error:
        raise RequirementError(
            f"{adapter_name(extra)} cannot load {module}: {error}. {install_hint(extra)}"
        ) from error


def require_version(distribution: str, at_least: str, extra: str) -> None:
    """Refuse a version of the framework that is older than the oldest one that works."""
    try:
        found = version(distribution)
    except PackageNotFoundError as error:
        problem = f"needs the package {distribution}, which is not installed"
        raise RequirementError(f"{adapter_name(extra)} {problem}: {install_hint(extra)}") from error
    if parse_release(found) < parse_release(at_least):
        raise RequirementError(
            f"{adapter_name(extra)} needs {distribution} {at_least} or later, and {found} is installed: "
            f"pip install --upgrade 'holdfast[{extra}]'"
        )


def adapter_name(extra: str) -> str:
    """The adapter as an error names it."""
    return f"holdfast.adapters.{extra.replace('-', '_')}"


def install_hint(extra: str) -> str:
    """What to do about it."""
    return f"pip install 'holdfast[{extra}]'"


def parse_release(text: str) -> tuple[int, ...]:
    """The numbers of a version, to be compared; what follows them (rc1, .dev2) is left out."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()
