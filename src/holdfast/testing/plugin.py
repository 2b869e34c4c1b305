"""The plugin of pytest under the name of this package, for ``-p holdfast.testing.plugin``.

It is written in ``holdfast.pytest_plugin``: a module of this package cannot be imported without
the suites in it, which takes half a second and needs Hypothesis.
"""

from __future__ import annotations

from holdfast.pytest_plugin import (
    holdfast_session,
    pytest_addoption,
    pytest_configure,
    pytest_runtest_logfinish,
    pytest_runtest_protocol,
    pytest_terminal_summary,
    pytest_unconfigure,
)

__all__ = [
    "holdfast_session",
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_logfinish",
    "pytest_runtest_protocol",
    "pytest_terminal_summary",
    "pytest_unconfigure",
]
