"""The reference covers the public API, every route and every environment variable."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import sys
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
IMPORT = re.compile(r"^ *from (holdfast\.[\w.]+) import (\([^)]*\)|[^\n]+)$", re.MULTILINE)
VARIABLE = re.compile(r"HOLDFAST_[A-Z_]+")


def load_tool(name: str):
    """Import a module from tools/, which is not on the path of the tests."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def documented():
    """The names and modules that the API reference renders."""
    pages = (DOCS / "reference").glob("*.md")
    return {name for page in pages for name in DIRECTIVE.findall(page.read_text())}


def test_every_public_name_is_in_the_api_reference(documented):
    public = {f"holdfast.{name}" for name in holdfast.__all__ if name != "__version__"}
    assert public - documented == set()


def test_every_name_that_a_page_imports_is_in_the_api_reference(documented):
    # docs/spec shows internals on purpose.
    for page in DOCS.rglob("*.md"):
        if page.parent.name == "spec":
            continue
        for module, imported in IMPORT.findall(page.read_text()):
            for name in re.findall(r"\w+", imported):
                accepted = {module, f"{module}.{name}", f"holdfast.{name}"}
                assert accepted & documented, f"{page.name}: {module}.{name}"


def test_every_environment_variable_of_the_cli_is_in_the_reference():
    source = "".join(file.read_text() for file in (ROOT / "src").rglob("cli/*.py"))
    page = (DOCS / "reference" / "cli.md").read_text()
    assert set(VARIABLE.findall(source)) <= set(VARIABLE.findall(page))


def test_every_route_is_in_the_rest_reference_with_its_parameters():
    tool = load_tool("reference")
    description = asyncio.run(tool.describe_server())
    sections = tool.format_reference(description).split("\n### ")
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            heading = f"{method.upper()} {path.replace(tool.SESSION, '…')}\n"
            (section,) = [each for each in sections if each.startswith(heading)]
            for parameter in route.get("parameters", ()):
                assert f"| `{parameter['name']}` |" in section, f"{heading} {parameter['name']}"


@pytest.mark.parametrize("name", ["documents", "langgraph", "server", "stores"])
def test_a_plot_shows_the_stored_results(name):
    plots = load_tool("plots")
    image = (DOCS / "images" / f"bench-{name}.svg").read_text(encoding="utf-8")
    assert image == plots.PLOTS[f"bench-{name}"](), "run python -m tools.plots"
    assert re.findall(r"https?:[^\"'\s)]*", image) == ["http://www.w3.org/2000/svg"]
    assert f"](images/bench-{name}.svg)" in (DOCS / "benchmarks.md").read_text()
