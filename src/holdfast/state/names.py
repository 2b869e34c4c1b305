"""The type of namespace and key arguments. Deliberately not compiled."""

from __future__ import annotations

from typing import Protocol


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
