"""Write folders of files, and read them back."""

from __future__ import annotations

import os
from pathlib import Path


def write_tree(root: Path, files: dict[str, str | bytes]) -> None:
    """Write files below a folder; a text that starts with ``->`` is the target of a link."""
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and content.startswith("->"):
            place.symlink_to(content[2:])
        else:
            place.write_bytes(content.encode() if isinstance(content, str) else content)


def read_tree(root: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder, and the targets of links."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in [*names, *(each for each in folders if Path(folder, each).is_symlink())]:
            place = Path(folder, name)
            path = place.relative_to(root).as_posix()
            link = place.is_symlink()
            found[path] = b"->" + bytes(place.readlink()) if link else place.read_bytes()
    return found
