"""Migrate documents of older schema versions, and describe the user's own migrations of values.

A step takes a document of one schema version and returns one of the next. A user whose values
change between releases describes the same for them with `ValueMigrations`; ``values_version`` in a
document is the version that its values have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.errors import InvalidDocumentError, short_repr

SCHEMA_VERSION = 1

Data: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[Data], Data]

_steps: dict[int, Step] = {}


def schema_step(version: int) -> Callable[[Step], Step]:
    """Register a function that migrates a document from one schema version to the next."""

    def register(step: Step) -> Step:
        _steps[version] = step
        return step

    return register


def migrate_schema(data: Mapping[str, Any], newest: int = SCHEMA_VERSION) -> Data:
    """Return a document in the newest schema version.

    Raises:
        InvalidDocumentError: Its version is invalid, or newer.

    """
    version = data.get("schema_version")
    if type(version) is not int or version < 1:
        raise InvalidDocumentError(
            f"invalid schema_version in document: must be a positive int, got {short_repr(version)}"
        )
    if version > newest:
        raise InvalidDocumentError(
            f"the document has schema version {short_repr(version)}, but this Holdfast reads up to "
            f"{newest}; upgrade Holdfast"
        )
    migrated = dict(data)
    for number in range(version, newest):
        if number not in _steps:
            raise InvalidDocumentError(f"no migration from schema version {number}")
        migrated = {**_steps[number](migrated), "schema_version": number + 1}
    return migrated


@dataclass(frozen=True, slots=True)
class ValueMigrations:
    """How the user's values are migrated from one version to the next.

    ``steps`` maps each older version to a function that takes the values (``state.values``) as a
    dict and returns them in the next version. Documents without ``values_version`` have version
    ``first``.
    """

    version: int
    steps: Mapping[int, Callable[[Data], Data]] = field(default_factory=dict)
    first: int = 1

    def apply(self, values: Data, version: int) -> Data:
        """Return values of an older version in the current one.

        Raises:
            InvalidDocumentError: The version is newer, or a step is missing.

        """
        if version > self.version:
            raise InvalidDocumentError(
                f"the document's values have version {version}, but this program reads up to "
                f"{self.version}; upgrade the program"
            )
        for number in range(version, self.version):
            if number not in self.steps:
                raise InvalidDocumentError(
                    f"no migration of values from version {number} to {number + 1}; add it to the "
                    "steps of ValueMigrations"
                )
            values = self.steps[number](values)
            if not isinstance(values, Mapping):
                raise TypeError(
                    f"the migration of values from version {number} to {number + 1} must return a "
                    f"dict, got {short_repr(values)}"
                )
        return values
