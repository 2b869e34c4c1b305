"""What the package promises to the outside."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest

import holdfast

PUBLIC = [
    "BlockingSession",
    "Catalog",
    "Changes",
    "Condition",
    "Conflict",
    "ConflictError",
    "Diff",
    "Document",
    "DocumentLimits",
    "Entry",
    "Event",
    "EventLog",
    "HoldfastError",
    "ImportResult",
    "IntegrityError",
    "InvalidDocumentError",
    "MISSING",
    "NotFoundError",
    "PruneResult",
    "Put",
    "Redactor",
    "RetentionPolicy",
    "Session",
    "SessionEntry",
    "SessionPage",
    "SessionSnapshot",
    "SessionState",
    "SessionSummary",
    "Snapshot",
    "SnapshotArchive",
    "SnapshotInfo",
    "SnapshotLocation",
    "SnapshotManager",
    "SnapshotManifest",
    "SnapshotPage",
    "SnapshotStorage",
    "StateStore",
    "StateStoreError",
    "Step",
    "Store",
    "SummaryPage",
    "UnfinishedCall",
    "UnsupportedValueError",
    "ValueMigrations",
    "Verification",
    "__version__",
    "compiled",
    "open_state_store",
    "read_document",
    "register_type",
    "replay",
    "write_document",
]

# The rest is described where it is defined: protocols of the standard library, typed dicts.
DOCUMENTED = ("holdfast.state", "holdfast.sessions", "holdfast.snapshots", "holdfast.log")


def test_the_public_names_are_these():
    assert sorted(holdfast.__all__) == sorted(PUBLIC)
    assert [name for name in PUBLIC if not hasattr(holdfast, name)] == []


@pytest.mark.skipif(holdfast.compiled, reason="mypyc keeps no docstrings")
@pytest.mark.parametrize("name", [name for name in PUBLIC if callable(getattr(holdfast, name))])
def test_every_public_name_has_a_docstring(name):
    thing = getattr(holdfast, name)
    assert inspect.getdoc(thing)
    if inspect.isclass(thing) and thing.__module__.startswith(DOCUMENTED):
        for member, content in vars(thing).items():
            if not member.startswith("_") and not inspect.ismemberdescriptor(content):
                assert inspect.getdoc(getattr(thing, member)), f"{name}.{member}"


def test_the_code_under_test_is_the_one_that_was_meant():
    expected = os.environ.get("HOLDFAST_EXPECT")
    if expected is None:
        pytest.skip("HOLDFAST_EXPECT says compiled or interpreted under make test")
    assert holdfast.compiled == (expected == "compiled")


def test_importing_takes_no_optional_package():
    program = "import sys; old = set(sys.modules); import holdfast; print(*set(sys.modules) - old)"
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    packages = {name.partition(".")[0] for name in loaded if "__mypyc" not in name}
    outside = {name for name in packages - sys.stdlib_module_names if name[0] != "_"}
    assert outside <= {"holdfast", "msgspec", "typing_extensions"}
