"""The pages of the site that are in no folder of the docs, put there whenever it is built.

A hook of MkDocs. The reference is written from the code, so that it cannot lag behind what it
describes; the pages on the project are files beside the docs, where those who look at the
repository expect them.
"""

from __future__ import annotations

from pathlib import Path

import reference_cli
import reference_python
import reference_rest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
WRITTEN = {
    "reference/cli.md": reference_cli.page,
    "reference/rest.md": reference_rest.page,
    "reference/python.md": reference_python.page,
}
BESIDE = {"project/contributing.md": "CONTRIBUTING.md", "project/changelog.md": "CHANGELOG.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them to the pages of the folder."""
    for place, page in WRITTEN.items():
        files.append(File.generated(config, place, content=page()))
    for place, name in BESIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](../")
        files.append(File.generated(config, place, content=text))
    return files
