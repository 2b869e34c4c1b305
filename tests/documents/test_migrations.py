"""Documents of older schema versions, and older values, are migrated step by step."""

from __future__ import annotations

import pytest

from holdfast import InvalidDocumentError
from holdfast.documents import migrations
from holdfast.documents.migrations import ValueMigrations, migrate_schema, schema_step


@pytest.fixture
def steps(monkeypatch):
    """Register only the steps of the test."""
    monkeypatch.setattr(migrations, "_steps", {})


def test_a_document_of_the_newest_schema_is_not_migrated(steps):
    tree = {"schema_version": 1, "state": {}}
    assert migrate_schema(tree) == tree
    assert migrate_schema(tree) is not tree


def test_an_older_document_passes_through_every_step(steps):
    @schema_step(1)
    def _(tree):
        return {**tree, "was": ["one"]}

    @schema_step(2)
    def _(tree):
        assert tree["schema_version"] == 2
        return {**tree, "was": [*tree.get("was", []), "two"]}

    given = {"schema_version": 1}
    assert migrate_schema(given, 3) == {"schema_version": 3, "was": ["one", "two"]}
    assert migrate_schema({"schema_version": 2}, 3) == {"schema_version": 3, "was": ["two"]}
    assert given == {"schema_version": 1}


def test_a_missing_schema_step_is_an_error(steps):
    with pytest.raises(InvalidDocumentError, match="no migration from schema version 1"):
        migrate_schema({"schema_version": 1}, 2)


def test_a_newer_schema_version_is_rejected(steps):
    with pytest.raises(InvalidDocumentError, match="schema version 3, .*reads up to 2; upgrade"):
        migrate_schema({"schema_version": 3}, 2)


@pytest.mark.parametrize("version", [None, 0, -1, True, "1", 1.0])
def test_an_invalid_schema_version_is_rejected(steps, version):
    with pytest.raises(InvalidDocumentError, match="schema_version.*must be a positive int"):
        migrate_schema({"schema_version": version})


def rename_goal(values):
    return {("plan" if key == "goal" else key): value for key, value in values.items()}


def test_values_are_migrated_step_by_step():
    mine = ValueMigrations(3, {1: rename_goal, 2: lambda values: {**values, "new": True}})
    assert mine.apply({"goal": 1}, 1) == {"plan": 1, "new": True}
    assert mine.apply({"plan": 1}, 2) == {"plan": 1, "new": True}
    assert mine.apply({"plan": 1}, 3) == {"plan": 1}
    assert mine.first == 1


def test_newer_values_are_rejected():
    with pytest.raises(InvalidDocumentError, match="values have version 4, .*up to 3; upgrade"):
        ValueMigrations(3, {}).apply({}, 4)


def test_a_missing_value_migration_is_an_error():
    mine = ValueMigrations(3, {1: rename_goal})
    with pytest.raises(InvalidDocumentError, match="no migration of values from version 2 to 3"):
        mine.apply({}, 1)


@pytest.mark.parametrize("given", [None, [("plan", 1)]])
def test_a_migration_that_does_not_return_a_dict_is_an_error(given):
    with pytest.raises(TypeError, match="from version 1 to 2 must return a dict, got"):
        ValueMigrations(2, {1: lambda values: given}).apply({}, 1)
