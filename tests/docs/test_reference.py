"""The generated pages say all that the code has, and the plots what was measured."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

import holdfast
from docs.pages import COMMAND

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"


def tool(name: str):
    """A module of the tools, which are no package of the tests."""
    found = importlib.util.spec_from_file_location(f"tools_{name}", TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cli():
    return tool("reference_cli").page()


@pytest.fixture(scope="module")
def rest():
    return tool("reference_rest")


@pytest.fixture(scope="module")
def python():
    return tool("reference_python").page()


def commands(name: str, command) -> dict[str, object]:
    """All commands below one, by how they are typed."""
    inside = getattr(command, "commands", None)
    if inside is None:
        return {name: command}
    return {
        key: each
        for verb, part in inside.items()
        for key, each in commands(f"{name} {verb}", part).items()
    }


def test_every_command_is_in_its_reference_with_all_it_takes(cli):
    for name, command in commands("holdfast", COMMAND).items():
        section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", cli, re.MULTILINE | re.DOTALL)[1]
        for parameter in command.params:
            if parameter.name != "help":
                words = parameter.opts if parameter.param_type_name == "option" else [""]
                told = parameter.help.replace("|", "\\|")
                assert told in section, f"{name} {parameter.name}"
                assert all(word in section for word in words), f"{name} {parameter.name}"


def test_every_variable_of_the_environment_is_in_the_reference(cli):
    source = "".join(file.read_text() for file in (ROOT / "src").rglob("cli/*.py"))
    assert set(re.findall(r"HOLDFAST_[A-Z_]+", source)) <= set(re.findall(r"HOLDFAST_[A-Z_]+", cli))


def test_every_route_and_shape_is_in_its_reference(rest):
    described, page = rest.description(), rest.page()
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            heading = f"### {method.upper()} {path.replace(rest.SESSION, '…')}\n"
            assert heading in page
            section = page.split(heading)[1].split("\n### ")[0]
            for parameter in told.get("parameters", ()):
                assert f"`{parameter['name']}`" in section, f"{method} {path} {parameter['name']}"
    for name in described["components"]["schemas"]:
        assert f"\n### {name}\n" in page
    links = set(re.findall(r"\(#([a-z0-9-]+)\)", page))
    assert links <= {each.lower() for each in re.findall(r"^### (\S+)$", page, re.MULTILINE)}


def test_every_public_name_is_in_its_reference_with_its_members(python):
    for name in holdfast.__all__:
        assert name == "__version__" or f"\n### {name}\n" in python, name
    for thing in (holdfast.Store, holdfast.Session, holdfast.SnapshotManager):
        for member in vars(thing):
            if not member.startswith("_"):
                shown = (f"#### {thing.__name__}.{member}\n", f"| `{member}` |")
                assert any(each in python for each in shown), f"{thing.__name__}.{member}"


def test_a_signature_has_the_arguments_that_a_call_takes(python):
    for name, member in vars(holdfast.SnapshotManager).items():
        if name.startswith("_") or not inspect.isfunction(member):
            continue
        shown = re.search(
            rf"#### SnapshotManager.{name}\n\n```python\n(.*?)\n```", python, re.DOTALL
        )
        _, *arguments = inspect.signature(member).parameters
        found = ast.parse(f"{shown[1]}: ...").body[0].args
        assert [each.arg for each in (*found.args, *found.kwonlyargs)] == arguments, name


@pytest.mark.parametrize("name", ["documents", "langgraph", "server", "stores"])
def test_a_plot_shows_the_results_that_are_kept(name):
    plots = tool("plots")
    drawn = (ROOT / "docs" / "images" / f"bench-{name}.svg").read_text(encoding="utf-8")
    assert drawn == plots.PLOTS[f"bench-{name}"](), "python -m tools.plots draws it anew"
    assert re.findall(r"https?:[^\"'\s)]*", drawn) == ["http://www.w3.org/2000/svg"]
    assert f"](images/bench-{name}.svg)" in (ROOT / "docs" / "benchmarks.md").read_text()
