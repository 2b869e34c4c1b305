"""The pytest plugin: in-memory sessions for tests, and baselines that can be updated.

Every pytest run imports this module if Holdfast is installed. So it imports nothing of Holdfast
until a test uses it, and only uses long-established hooks of pytest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from holdfast.documents.document import Document
    from holdfast.sessions.blocking import BlockingSession

    DocumentSource: TypeAlias = str | os.PathLike[str] | Document
    SessionFactory: TypeAlias = Callable[..., BlockingSession]

UPDATE = "--holdfast-update"
NOTE = "holdfast_baseline"
AGENT = "agent"


class Run:
    """A pytest run and its current test."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.item: pytest.Item | None = None


_runs: list[Run] = []
"""The last one is current; there are several if a test runs pytest itself."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that updates baselines."""
    parser.getgroup("holdfast").addoption(
        UPDATE,
        action="store_true",
        default=False,
        help="write missing and changed baselines of assert_matches_baseline",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the run."""
    _runs.append(Run(config))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Unregister the run."""
    _runs[:] = [run for run in _runs if run.config is not config]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Remember the current test."""
    _runs[-1].item = item


def pytest_runtest_logfinish() -> None:
    """Forget the current test."""
    _runs[-1].item = None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the baselines that were written, because those tests compared nothing."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    properties = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    notes = dict.fromkeys(str(value) for name, value in properties if name == NOTE)
    if notes:
        terminalreporter.section("holdfast baselines")
        for note in notes:
            terminalreporter.write_line(note)


def is_updating() -> bool:
    """Return whether this run updates baselines."""
    return bool(_runs) and bool(_runs[-1].config.getoption(UPDATE))


def resolve_path(path: str | os.PathLike[str]) -> Path:
    """Return a path relative to the folder of the current test."""
    item = _runs[-1].item if _runs else None
    return Path(path) if item is None else item.path.parent / path


def report_written(path: Path, what: str) -> None:
    """Add a baseline to the summary; works in xdist workers too."""
    item = _runs[-1].item if _runs else None
    if item is not None:
        item.user_properties.append((NOTE, f"{what} {os.path.relpath(path, item.config.rootpath)}"))


@pytest.fixture
def holdfast_session() -> Iterator[SessionFactory]:
    """Return a function that opens an in-memory session.

    ``holdfast_session("baseline.json")`` restores a document, given as a path relative to the test
    or as a ``Document``; ``holdfast_session()`` opens an empty session. ``agent_id`` and
    ``session_id`` set other ids. All sessions are closed when the test ends.
    """
    from holdfast.documents.document import Document  # noqa: PLC0415
    from holdfast.sessions.blocking import BlockingSession  # noqa: PLC0415
    from holdfast.stores.portal import get_portal  # noqa: PLC0415
    from holdfast.stores.registry import open_state_store  # noqa: PLC0415
    from holdfast.transfer.manager import SnapshotManager  # noqa: PLC0415

    with ExitStack() as stack:

        def open_session(
            document: DocumentSource | None = None,
            *,
            agent_id: str | None = None,
            session_id: str | None = None,
        ) -> BlockingSession:
            store = open_state_store("memory:")
            stack.callback(lambda: get_portal().call(store.close()))
            if document is None:
                return BlockingSession.open(
                    store, agent_id=AGENT if agent_id is None else agent_id, session_id=session_id
                )
            manager = SnapshotManager(store)
            if not isinstance(document, Document):
                document = manager.from_file(resolve_path(document), allow_modified=True)
            result = get_portal().call(
                manager.import_session(document, agent_id=agent_id, session_id=session_id)
            )
            return BlockingSession.open(
                store,
                agent_id=result.agent_id,
                session_id=result.session_id,
                scope=document.scope,
                must_exist=True,
            )

        yield open_session
