"""Documents of older versions, brought up to date step by step: ours, and the user's own values.

A step takes a document of one schema version and returns one of the next. A user whose values
change their shape between releases does the same for them: ``values_version`` in the document says
which release wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.errors import InvalidDocumentError, short_repr

SCHEMA_VERSION = 1

Tree: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[Tree], Tree]

_steps: dict[int, Step] = {}


def schema_step(version: int) -> Callable[[Step], Step]:
    """Register what brings a document of one schema version to the next."""

    def register(step: Step) -> Step:
        _steps[version] = step
        return step

    return register


def migrate_schema(tree: Mapping[str, Any], newest: int = SCHEMA_VERSION) -> Tree:
    """A document in the newest schema. A newer one than that is refused."""
    version = tree.get("schema_version")
    if type(version) is not int or version < 1:
        raise InvalidDocumentError(
            f"the document's schema_version is a number from 1, not {short_repr(version)}"
        )
    if version > newest:
        raise InvalidDocumentError(
            f"the document has schema version {short_repr(version)}, and this Holdfast knows up to "
            f"{newest}: upgrade it"
        )
    found = dict(tree)
    for number in range(version, newest):
        if number not in _steps:
            raise InvalidDocumentError(f"there is no way from schema version {number} to the next")
        found = {**_steps[number](found), "schema_version": number + 1}
    return found


@dataclass(frozen=True, slots=True)
class ValueMigrations:
    """How the user's own values come from one release to the next.

    ``steps`` has for each older version a function that takes the values (``state.values``) as a
    dict and returns them as the next version has them. Documents without a ``values_version`` have
    ``first``.
    """

    version: int
    steps: Mapping[int, Callable[[Tree], Tree]] = field(default_factory=dict)
    first: int = 1

    def applied(self, values: Tree, version: int) -> Tree:
        """Values of an older version as they are now."""
        if version > self.version:
            raise InvalidDocumentError(
                f"the document's values have version {version}, and this program knows up to "
                f"{self.version}: upgrade it"
            )
        for number in range(version, self.version):
            if number not in self.steps:
                raise InvalidDocumentError(
                    f"there is no migration of values from version {number} to {number + 1}: add "
                    "it to the steps of ValueMigrations"
                )
            values = self.steps[number](values)
            if not isinstance(values, Mapping):
                raise TypeError(
                    f"the migration of values from version {number} to {number + 1} returned "
                    f"{short_repr(values)}: it returns the values as a dict"
                )
        return values
