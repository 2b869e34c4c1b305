"""Roll back an agent after a mistake: the same as ``holdfast demo``. Run: make demo."""

from __future__ import annotations

from holdfast.console_script import main

if __name__ == "__main__":
    main(["demo"])
