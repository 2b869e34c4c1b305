"""The reference of the Python API, read from the source.

Nothing is imported: compiled modules have neither docstrings nor signatures, and adapters want
their frameworks. A name is followed from the `__init__.py` that exports it to where it is defined,
and a class to its bases, as far as they are ours.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, DOCS = ROOT / "src", ROOT / "docs"
HEAD = """# Python API: reference

Every public name with its signature, as the source has them: all of `holdfast`, and what other
pages import from its modules. What they are for is told on the pages of
[sessions](../sessions.md), [snapshots](../snapshots.md), [documents](../documents.md),
[the store](../store.md) and [state stores](../stores/index.md). What is not listed here may change
from one release to the next.
"""
IMPORT = re.compile(r"^ *from (holdfast\.[\w.]+) import (\([^)]*\)|[^\n]+)$", re.MULTILINE)
# How stored data is put together may be looked at, and is no interface.
INTERNAL = "spec/"
LINE = 88
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.ClassDef | Function | ast.Assign | ast.AnnAssign


@dataclass(frozen=True, slots=True)
class Found:
    """A definition, and the module that it is in."""

    module: str
    node: Definition


def page() -> str:
    """The whole page."""
    parts = [HEAD, section("holdfast", exported("holdfast") or [])]
    for module, (names, pages) in sorted(imported().items()):
        links = ", ".join(f"[{title(each)}](../{each})" for each in pages)
        parts.append(section(module, exported(module) or sorted(names), f"See {links}."))
    return "".join(parts)


def section(module: str, names: list[str], told: str = "All that most programs need.") -> str:
    """A module with the names that are public in it."""
    found = {name: find(module, name) for name in names if name != "__version__"}
    parts = [f"\n## {module}\n\n{told}\n"]
    parts += (described(name, each) for name, each in found.items() if each is not None)
    return "".join(parts)


def imported() -> dict[str, tuple[set[str], list[str]]]:
    """What pages import from which module, and which pages do."""
    found: dict[str, tuple[set[str], list[str]]] = {}
    for path in sorted(DOCS.rglob("*.md")):
        page_ = path.relative_to(DOCS).as_posix()
        if page_.startswith(INTERNAL):
            continue
        for module, listed in IMPORT.findall(path.read_text(encoding="utf-8")):
            names, pages = found.setdefault(module, (set(), []))
            names.update(re.findall(r"\w+", listed))
            if page_ not in pages:
                pages.append(page_)
    return found


def title(page_: str) -> str:
    """What a page is called."""
    return (DOCS / page_).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


@functools.cache
def tree(module: str) -> ast.Module | None:
    """The source of a module of ours, or None for one of others."""
    path = SOURCE.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return ast.parse(file.read_text(encoding="utf-8"))
    return None


def exported(module: str) -> list[str] | None:
    """What a module itself calls public."""
    for node in (tree(module) or ast.Module([], [])).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value), key=str.lower)
    return None


def find(module: str, name: str) -> Found | None:
    """Where a name is defined, through any number of imports; None where it is not ours."""
    source = tree(module)
    if source is None:
        return None
    for node in ast.walk(source):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                return Found(module, node)
            case ast.Assign() if ast.unparse(node.targets[0]) == name:
                return Found(module, node)
            case ast.AnnAssign() if ast.unparse(node.target) == name:
                return Found(module, node)
            case ast.ImportFrom(module=str(there)):
                for each in node.names:
                    if (each.asname or each.name) == name:
                        return find(there, each.name)
    return None


def described(name: str, found: Found) -> str:
    """One name: a class with its members, a function, or a value."""
    node = found.node
    if isinstance(node, ast.ClassDef):
        return described_class(name, node, found.module)
    if isinstance(node, Function):
        return block(f"### {name}", signature(node, bound=False), ast.get_docstring(node))
    return block(f"### {name}", ast.unparse(node), None)


def described_class(name: str, node: ast.ClassDef, module: str) -> str:
    """A class, its attributes as a table, and its own and inherited methods."""
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    line = f"class {name}({bases})" if bases else f"class {name}"
    members: dict[str, ast.stmt] = {}
    for each in lineage(node, module):
        for member in public_members(each):
            members.setdefault(member_name(member), member)
    rows = [attribute(each) for each in members.values() if is_attribute(each)]
    table = "\n".join(["", "| attribute | type | |", "| --- | --- | --- |", *rows, ""])
    parts = [block(f"### {name}", line, ast.get_docstring(node)), table if rows else ""]
    for member in members.values():
        if isinstance(member, Function) and not is_attribute(member):
            heading = f"#### {name}.{member.name}"
            parts.append(block(heading, signature(member), ast.get_docstring(member)))
    return "".join(parts)


def lineage(node: ast.ClassDef, module: str) -> Iterator[ast.ClassDef]:
    """A class and its bases, as far as they are ours and have no section of their own."""
    yield node
    for base in node.bases:
        name = ast.unparse(base).split("[")[0]
        above = find(module, name)
        if above is None or name in (exported("holdfast") or []):
            continue
        if isinstance(above.node, ast.ClassDef):
            yield from lineage(above.node, above.module)


def is_attribute(member: ast.stmt) -> bool:
    """Whether a member is read, and not called."""
    marks = [ast.unparse(mark) for mark in getattr(member, "decorator_list", ())]
    return isinstance(member, ast.AnnAssign) or any(mark.endswith("property") for mark in marks)


def attribute(member: ast.stmt) -> str:
    """A row about a field or a property."""
    told = kind = ""
    if isinstance(member, ast.AnnAssign):
        kind = ast.unparse(member.annotation)
    elif isinstance(member, Function):
        kind = ast.unparse(member.returns) if member.returns else "Any"
        told = plain(ast.get_docstring(member)).replace("\n", " ")
    cells = (f"`{member_name(member)}`", f"`{kind}`", told)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def public_members(node: ast.ClassDef) -> Iterator[ast.stmt]:
    """Fields and methods to be used; of an overloaded one the first, and no tests of a suite."""
    seen = set()
    for each in node.body:
        plain = isinstance(each, ast.AnnAssign | Function)
        if (
            plain
            and not member_name(each).startswith(("_", "test_"))
            and member_name(each) not in seen
        ):
            seen.add(member_name(each))
            if not any(
                "setter" in ast.unparse(mark) for mark in getattr(each, "decorator_list", ())
            ):
                yield each


def member_name(node: ast.stmt) -> str:
    """What a member is called."""
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target)
    return str(getattr(node, "name", ""))


def signature(node: Function, *, bound: bool = True) -> str:
    """A function as it is called, with how it is called in front."""
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    words = [mark for mark in marks if mark in {"classmethod", "staticmethod", "abstractmethod"}]
    taken = arguments(node.args)
    if bound and "staticmethod" not in marks:
        taken = taken[1:]  # nobody writes self
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{kind} {node.name}({', '.join(taken)}){returns}"
    if len(line) > LINE:
        line = f"{kind} {node.name}(\n    " + ",\n    ".join(taken) + f",\n){returns}"
    return "".join(f"@{word}\n" for word in words) + line


def arguments(taken: ast.arguments) -> list[str]:
    """Arguments as they are written, with the marks of those by place and by name alone."""
    places = [*taken.posonlyargs, *taken.args]
    blank = [None] * (len(places) - len(taken.defaults))
    shown = [argument(*pair) for pair in zip(places, [*blank, *taken.defaults], strict=True)]
    if taken.posonlyargs:
        shown.insert(len(taken.posonlyargs), "/")
    if taken.vararg:
        shown.append(f"*{argument(taken.vararg, None)}")
    elif taken.kwonlyargs:
        shown.append("*")
    shown += map(argument, taken.kwonlyargs, taken.kw_defaults)
    return shown + ([f"**{argument(taken.kwarg, None)}"] if taken.kwarg else [])


def argument(taken: ast.arg, default: ast.expr | None) -> str:
    """One argument with its type and its default."""
    typed = f"{taken.arg}: {ast.unparse(taken.annotation)}" if taken.annotation else taken.arg
    if default is None:
        return typed
    return (
        f"{typed} = {ast.unparse(default)}"
        if taken.annotation
        else f"{typed}={ast.unparse(default)}"
    )


def plain(told: str | None) -> str:
    """A docstring as Markdown."""
    return re.sub(r"``([^`]+)``", r"`\1`", told.strip()) if told else ""


def block(heading: str, code: str, told: str | None) -> str:
    """A heading, a signature, and what the docstring says."""
    words = plain(told)
    return f"\n{heading}\n\n```python\n{code}\n```\n" + (f"\n{words}\n" if words else "")
