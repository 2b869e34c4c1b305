"""What Holdfast adds to pytest: sessions in memory for tests, and baselines that can be updated.

Every run of pytest where Holdfast is installed imports this module, whatever is tested and with
whatever version of pytest. So it imports nothing of Holdfast before a test asks for it, needs
nothing but pytest, and uses only hooks that have been there for long.
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
    """One run of pytest, and the test that it is at."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.item: pytest.Item | None = None


_runs: list[Run] = []
"""The last one is at work; there are several where a test runs pytest itself."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that updates baselines."""
    parser.getgroup("holdfast").addoption(
        UPDATE,
        action="store_true",
        default=False,
        help="write the baselines that assert_matches_baseline compares with anew",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Note that a run begins."""
    _runs.append(Run(config))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Note that it ended."""
    _runs[:] = [run for run in _runs if run.config is not config]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Note which test is run."""
    _runs[-1].item = item


def pytest_runtest_logfinish() -> None:
    """Note that it was."""
    _runs[-1].item = None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which baselines were written: a test that passes so has compared nothing."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    properties = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    notes = dict.fromkeys(str(value) for name, value in properties if name == NOTE)
    if notes:
        terminalreporter.section("holdfast baselines")
        for note in notes:
            terminalreporter.write_line(note)


def is_updating() -> bool:
    """Whether this run of pytest writes baselines anew."""
    return bool(_runs) and bool(_runs[-1].config.getoption(UPDATE))


def beside_test(path: str | os.PathLike[str]) -> Path:
    """A path as the running test means it: relative to the folder of its file."""
    item = _runs[-1].item if _runs else None
    return Path(path) if item is None else item.path.parent / path


def report_written(path: Path, what: str) -> None:
    """Have the summary say that a baseline was written, also from a worker of xdist."""
    item = _runs[-1].item if _runs else None
    if item is not None:
        item.user_properties.append((NOTE, f"{what} {os.path.relpath(path, item.config.rootpath)}"))


@pytest.fixture
def holdfast_session() -> Iterator[SessionFactory]:
    """A function that gives a session in memory: a document's, or an empty one.

    ``holdfast_session("baseline.json")`` restores a document, of a file beside the test or one that
    was read; ``holdfast_session()`` begins an empty session. ``agent_id`` and ``session_id`` give
    it other names. Everything is closed when the test ends.
    """
    from holdfast.documents.document import Document  # noqa: PLC0415
    from holdfast.sessions.blocking import BlockingSession  # noqa: PLC0415
    from holdfast.sessions.portal import get_portal  # noqa: PLC0415
    from holdfast.stores.registry import open_state_store  # noqa: PLC0415
    from holdfast.transfer.manager import SnapshotManager  # noqa: PLC0415

    with ExitStack() as stack:

        def opened(
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
                document = manager.from_file(beside_test(document), allow_modified=True)
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

        yield opened
