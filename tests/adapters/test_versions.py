"""Every adapter refuses other versions of its framework, and is on the page of frameworks."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

import holdfast.adapters
from holdfast.extras import MissingExtraError

ROOT = Path(__file__).parents[2]
FOLDER = Path(holdfast.adapters.__file__).parent
PAGE = ROOT / "docs" / "adapters" / "index.md"
PACKAGES = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
COLUMNS = ["framework", "class", "what is stored", "what Holdfast adds", "not supported"]

VERSIONS = {
    # package: distribution, oldest version, first version that is too new, extra
    "a2a": ("a2a-sdk", "1.3", "2", "a2a"),
    "adk": ("google-adk", "2.13", "3", "adk"),
    "agent_framework": ("agent-framework-core", "1.23", "2", "agent-framework"),
    "claude_agent": ("claude-agent-sdk", "0.2.180", "0.3", "claude-agent"),
    "crewai": ("crewai", "1.15", "2", "crewai"),
    "langgraph": ("langgraph-checkpoint", "4.3", "5", "langgraph"),
    "openai_agents": ("openai-agents", "0.8", "1", "openai-agents"),
    "pydantic_ai": ("pydantic-ai-slim", "2.66", "3", "pydantic-ai"),
    "strands": ("strands-agents", "1.52", "2", "strands"),
}
every_package = pytest.mark.parametrize("package", PACKAGES)


def test_the_versions_of_every_adapter_are_listed():
    assert PACKAGES
    assert set(PACKAGES) <= set(VERSIONS)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes a version of a distribution the installed one, as the package managers do."""

    def call(distribution, version):
        folder = tmp_path / version
        info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        fields = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        (info / "METADATA").write_text(fields)
        monkeypatch.syspath_prepend(str(folder))

    return call


@pytest.fixture
def import_again(monkeypatch):
    """Imports a package as in a new process."""

    def call(name):
        for module in [*sys.modules]:
            if module == name or module.startswith(f"{name}."):
                monkeypatch.delitem(sys.modules, module)
        return importlib.import_module(name)

    return call


def precede(version):
    """Return a version just before another."""
    *first, last = map(int, version.split("."))
    return ".".join(map(str, (*first, last - 1, 999)))


@every_package
@pytest.mark.parametrize("kind", ["too old", "too new", "far too new"])
def test_another_version_is_one_error_with_the_version_needed(package, kind, install, import_again):
    distribution, oldest, next_, extra = VERSIONS[package]
    versions = {"too old": precede(oldest), "too new": next_, "far too new": f"{next_}.4.1"}
    install(distribution, versions[kind])
    with pytest.raises(MissingExtraError) as caught:
        import_again(f"holdfast.adapters.{package}")
    text = str(caught.value)
    needed = f"needs {distribution} >={oldest},<{next_}, but {versions[kind]} is installed"
    assert needed in text
    assert f"'holdfast[{extra}]'" in text
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@every_package
def test_the_extra_requires_the_oldest_version(package):
    distribution, oldest, _, extra = VERSIONS[package]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [re.split(r"[,;\s]", each)[0] for each in project["optional-dependencies"][extra]]
    assert f"{distribution}>={oldest}" in found


# --------------------------------------------------------------------------------------- the page


def list_public_names(package):
    """Return what a package exports, without importing its framework."""
    tree = ast.parse((FOLDER / package / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def list_rows():
    """Return the rows of the table as lists of cells."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines]


@every_package
def test_every_adapter_is_in_the_table_of_frameworks(package):
    header, _, *rows = list_rows()
    assert header == COLUMNS
    names = list_public_names(package)
    found = [row for row in rows if names & set(re.findall(r"`(\w+)`", row[1]))]
    assert found, f"no row of {PAGE.name} names a class of {package}: {sorted(names)}"
    for row in found:
        assert len(row) == len(COLUMNS)
        assert all(row[:4])
        (page,) = re.findall(r"\]\(([\w-]+\.md)\)", row[0])
        assert (PAGE.parent / page).exists()
