"""No package uses the private names of another one: names that start with an underscore."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import holdfast

SOURCE = Path(holdfast.__file__).parent
OTHER_PROJECTS = {
    ("adapters.a2a", "_value"),
    ("adapters.adk", "_apply_temp_state"),
    ("adapters.adk", "_commit_event_to_session"),
    ("adapters.adk", "_storage_update_marker"),
    ("adapters.adk", "_trim_temp_delta_state"),
    ("adapters.strands", "_NAMESPACED"),
    ("stores", "_pending"),
    ("stores", "_server_info"),
}
"""Private names of the A2A SDK, ADK, Strands and nats-py, which have no public name for these."""
STANDARD_LIBRARY = {"_exit", "_replace"}
"""Public names of ``os`` and of named tuples that start with an underscore."""


def package_of(path):
    """Return the package of a module; each adapter, and each top-level module, is its own."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:2] if parts[0] == "adapters" and len(parts) > 2 else parts[:1])


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def defined_names(tree):
    """Yield the names that a module defines: functions, classes, variables, own attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(value=ast.Name(id="self" | "cls"), ctx=ast.Store()):
                yield node.attr


def used_names(tree):
    """Yield the private names that a module uses of objects and of other modules."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() if is_private(node.attr):
                yield node.attr, node.lineno
            case ast.ImportFrom():
                yield from (
                    (each.name, node.lineno) for each in node.names if is_private(each.name)
                )


def find_foreign_names(modules):
    """Return each private name that is used in a package which does not define it."""
    defined = defaultdict(set)
    for _, package, tree in modules:
        defined[package].update(defined_names(tree))
    return [
        f"{path}:{line}: {name}"
        for path, package, tree in modules
        for name, line in used_names(tree)
        if name not in defined[package] | STANDARD_LIBRARY and (package, name) not in OTHER_PROJECTS
    ]


def test_no_package_uses_private_names_of_another_one():
    modules = [
        (path.relative_to(SOURCE), package_of(path), ast.parse(path.read_text("utf-8")))
        for path in sorted(SOURCE.rglob("*.py"))
    ]
    assert find_foreign_names(modules) == []


@pytest.mark.parametrize(
    "text",
    ["session._store", "self._store.get(1)", "from holdfast.log import _store", "x()._store"],
)
def test_a_private_name_of_another_package_is_found(text):
    assert find_foreign_names([("a.py", "a", ast.parse(text))]) == ["a.py:1: _store"]
    own = ast.parse("class A:\n    def __init__(self):\n        self._store = 1")
    modules = [("a.py", "a", ast.parse(text)), ("b.py", "a", own)]
    assert find_foreign_names(modules) == []
