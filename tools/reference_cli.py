"""The reference of the command line: every command as its own help describes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from holdfast.cli.main import app

HEAD = """# Command line: reference

Every command, argument and option, as the program itself knows them.
[The command line](../cli.md) tells what they are for, and the [guides](../guides/undo.md) use them.

| a command ends with | where |
| --- | --- |
| 0 | it did what was asked |
| 1 | the operation failed: one line says why, another what to do |
| 2 | it was used wrongly |
| 130 | it was interrupted |

| variable | |
| --- | --- |
| `HOLDFAST_STORE` | the URL of the state store, where `--store` says none |
| `HOLDFAST_ENVIRONMENT` | the environment that exported documents come from |
| `HOLDFAST_TOKEN` | what `holdfast serve` lets in, where `--token` says none |
| `HOLDFAST_TRUSTED_KEYS` | keys that [count](../signing.md), where `--trust` names none |
| `HOLDFAST_SIGNING_PASSPHRASE` | what a private key is locked with |
| `HOLDFAST_TRACEBACK` | set to anything, errors show where in the code they came from |
"""
# Flags of every command, which would say the same on each.
EVERYWHERE = {"help", "install_completion", "show_completion"}


def page() -> str:
    """The whole page."""
    return HEAD + "".join(sections("holdfast", typer.main.get_command(app)))


def sections(name: str, command: Any) -> Iterator[str]:
    """One section for each command, groups before what is in them."""
    inside = getattr(command, "commands", None)
    if inside is None:
        yield section(name, command)
        return
    for verb, each in sorted(inside.items(), key=lambda item: not hasattr(item[1], "commands")):
        yield from sections(f"{name} {verb}", each)


def section(name: str, command: Any) -> str:
    """What a command does, how it is called, and what it takes."""
    told, examples = split_help(command.help or "")
    takes = [each for each in command.params if each.name not in EVERYWHERE]
    arguments = [each for each in takes if each.param_type_name == "argument"]
    options = [each for each in takes if each.param_type_name == "option"]
    usage = [name, *(argument_name(each) for each in arguments)]
    usage += [f"{each.opts[0]} {each.metavar}" for each in options if each.required]
    if any(not each.required for each in options):
        usage.append("[OPTIONS]")
    parts = [f"\n## {name}", told, f"```text\n{' '.join(usage)}\n```"]
    if examples:
        parts.append("```shell\n" + "\n".join(examples) + "\n```")
    rows = [argument_row(each) for each in arguments] + [option_row(each) for each in options]
    parts.append("\n".join(["| | | without it |", "| --- | --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def split_help(text: str) -> tuple[str, list[str]]:
    """What is told of a command, and its examples."""
    lines = text.strip().splitlines()
    examples = [line.removeprefix("Example: ") for line in lines if line.startswith("Example: ")]
    told = "\n".join(line for line in lines if not line.startswith("Example: "))
    return told.strip(), examples


def argument_name(argument: Any) -> str:
    """An argument as it stands in the usage."""
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required else f"[{name}]"


def argument_row(argument: Any) -> str:
    """What an argument is."""
    default = "required" if argument.required else shown_default(argument)
    return row(f"`{argument_name(argument).strip('[]')}`", argument.help, default)


def option_row(option: Any) -> str:
    """What an option is, with all its names."""
    value = "" if option.is_flag else f" {option.metavar or choices(option)}"
    names = ", ".join(f"`{name}{value}`" for name in [*option.opts, *option.secondary_opts])
    told = f"{option.help} May be given several times." if option.multiple else option.help
    return row(names, told, "required" if option.required else shown_default(option))


def choices(option: Any) -> str:
    """The values that an option may have."""
    known = getattr(getattr(option, "type", None), "choices", None)
    if known is None and (default := option.default) is not None and hasattr(default, "name"):
        known = [each.value for each in type(default)]
    return "|".join(map(str, known)) if known else "VALUE"


def shown_default(parameter: Any) -> str:
    """What holds where nothing is said, if that is worth a word."""
    default = parameter.default
    if default in (None, False, ()) or callable(default):
        return ""
    return f"`{getattr(default, 'value', default)}`"


def row(name: str, told: str | None, default: str) -> str:
    """A row of a table, in which a bar would end a cell."""
    cells = (re.sub(r"(?<!\\)\|", r"\\|", cell or "") for cell in (name, told, default))
    return f"| {' | '.join(cells)} |"
