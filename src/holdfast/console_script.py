"""What the command ``holdfast`` calls: it needs the extra ``cli``, and says so without it."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from holdfast.cli.main import app  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        sys.exit(f"the command line needs {error.name}: pip install 'holdfast[cli]'")
    app()
