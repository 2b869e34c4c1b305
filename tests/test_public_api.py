"""The public names of the package."""

from __future__ import annotations

import inspect
import os
import sys

import pytest

import holdfast
from support.subprocesses import read_python

PUBLIC = [
    "Attachment",
    "BlockingSession",
    "BlockingWorkspace",
    "CaptureReport",
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
    "FileChange",
    "FileEntry",
    "HoldfastError",
    "ImportResult",
    "IntegrityError",
    "InvalidDocumentError",
    "MISSING",
    "NotFoundError",
    "PruneResult",
    "Put",
    "Redactor",
    "RestoreReport",
    "RetentionPolicy",
    "Session",
    "SessionChange",
    "SessionEntry",
    "SessionPage",
    "SessionSnapshot",
    "SessionState",
    "SessionSummary",
    "SkippedFile",
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
    "Workspace",
    "WorkspaceChangedError",
    "WorkspaceDiff",
    "WorkspaceError",
    "__version__",
    "compiled",
    "open_state_store",
    "read_document",
    "register_type",
    "replay",
    "write_document",
]

# Members of these packages must have docstrings; others inherit theirs from the standard library.
DOCUMENTED = (
    "holdfast.documents",
    "holdfast.log",
    "holdfast.redaction",
    "holdfast.sessions",
    "holdfast.snapshots",
    "holdfast.state",
    "holdfast.transfer",
    "holdfast.values",
)


def test_the_public_names():
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


def test_the_expected_build_is_tested():
    expected = os.environ.get("HOLDFAST_EXPECT")
    if expected is None:
        pytest.skip("HOLDFAST_EXPECT says compiled or interpreted under make test")
    assert holdfast.compiled == (expected == "compiled")


def test_import_loads_no_optional_package():
    program = "import sys; old = set(sys.modules); import holdfast; print(*set(sys.modules) - old)"
    loaded = read_python(program).split()
    packages = {name.partition(".")[0] for name in loaded if "__mypyc" not in name}
    outside = {name for name in packages - sys.stdlib_module_names if name[0] != "_"}
    assert outside <= {"holdfast", "msgspec", "typing_extensions"}
