"""docs/cli.md documents every command and option, and only those."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from holdfast.cli.main import KEYS_VERBS, STATE_VERBS, VERBS, WORKSPACE_VERBS, app

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
TREE = typer.main.get_command(app)
COMMANDS = {
    **{f"state {verb}": TREE.commands["state"].commands[verb] for verb in STATE_VERBS},
    **{f"keys {verb}": TREE.commands["keys"].commands[verb] for verb in KEYS_VERBS},
    **{f"workspace {verb}": TREE.commands["workspace"].commands[verb] for verb in WORKSPACE_VERBS},
    **{verb: TREE.commands[verb] for verb in VERBS},
}
EXAMPLES = [
    part.strip()
    for block in re.findall(r"^```shell\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    for part in re.split(r" && | \| |#", line)
    if "holdfast " in part
]


def find_section(name: str) -> str:
    """Return the section of a command."""
    found = re.search(rf"^### holdfast {name}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/cli.md has no section on holdfast {name}"
    return found[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_command_and_its_options_are_documented(name):
    text = find_section(name)
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "option" and parameter.name != "help":
            for option in parameter.opts:
                assert re.search(rf"`{option}[ `]", text), f"{name} {option}"
        elif parameter.param_type_name == "argument":
            for word in parameter.metavar.split("|"):
                assert word in text, f"{name} {word}"
    assert f"holdfast {name}" in "".join(re.findall(r"```shell\n(.*?)```", text, re.DOTALL))


def test_global_options_are_documented():
    for option in ("--version", "--show-completion", "--install-completion", "--help"):
        assert f"`{option}`" in PAGE


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_parses(example):
    words = shlex.split(example)
    words = words[words.index("holdfast") + 1 :]
    name = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), None)
    if name is None:
        assert words[0].startswith("--"), example
        return
    COMMANDS[name].make_context(name, words[len(name.split()) :], resilient_parsing=False)


def test_documented_options_exist():
    known = {
        option for command in COMMANDS.values() for each in command.params for option in each.opts
    }
    known |= {"--version", "--show-completion", "--install-completion", "--help"}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known
