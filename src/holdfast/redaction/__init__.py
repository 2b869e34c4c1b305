"""Remove secrets and personal data from documents."""

from __future__ import annotations

from holdfast.redaction.redactor import Redactor

__all__ = ["Redactor"]
