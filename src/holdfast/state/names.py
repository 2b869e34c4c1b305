"""What compiled code needs and must not be compiled itself: a type of arguments, a decorator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_: object) -> object:
        """Return the class unchanged: mypyc reads the decorator before anything runs."""
        return lambda kind: kind


__all__ = ["Text", "mypyc_attr"]


class Text(Protocol):
    """A ``str``: no other type has both of these methods.

    For a parameter annotated ``str``, compiled code raises a TypeError that does not name the
    argument, before the function runs. With this annotation the store can raise a better one.
    """

    def casefold(self) -> str:
        """As ``str.casefold``."""
        ...

    def isidentifier(self) -> bool:
        """As ``str.isidentifier``."""
        ...
