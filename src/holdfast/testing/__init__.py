"""Suites that anybody can run over a ``StateStore`` of their own.

They need pytest and Hypothesis: ``pip install 'holdfast[testing]'``.
"""

from __future__ import annotations

from holdfast.testing.state_machine import compare_with_memory
from holdfast.testing.state_store_suite import StateStoreSuite

__all__ = ["StateStoreSuite", "compare_with_memory"]
