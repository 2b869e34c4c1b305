"""What a namespace or a key is to a type checker. Not compiled, on purpose."""

from __future__ import annotations

from typing import Protocol


class Text(Protocol):
    """A ``str``, and nothing else has both of these.

    Compiled code refuses an argument annotated ``str`` before the function sees it, with an error
    that does not say which argument it was. Annotated as this it arrives, and the store says it.
    """

    def casefold(self) -> str:
        """As ``str.casefold``."""
        ...

    def isidentifier(self) -> bool:
        """As ``str.isidentifier``."""
        ...
