"""Modules and class names for the tests of the registry."""

from __future__ import annotations

import sys


def write_module(folder, monkeypatch, name, text):
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)


def class_names(store):
    """Return the class names of a store and those inside it, outermost first."""
    names = [type(store).__name__]
    while hasattr(store, "inner"):
        store = store.inner
        names.append(type(store).__name__)
    return names
