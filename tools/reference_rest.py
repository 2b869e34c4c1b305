"""The reference of the REST API: its own OpenAPI description, to be read without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import holdfast
from holdfast.server import create_app

HEAD = """# REST API: reference

Every route, as the server itself describes it at `/openapi.json`; `holdfast serve` shows the same
to try out at `/docs`. [The server](../server.md) tells how to run and protect it. In headings `…`
stands for `/agents/{agent_id}/sessions/{session_id}`.

## Problems

An answer that is not a success is a [problem document](#problemshape). Any route may give these:

"""
TITLES = {"look": "Looking", "change": "Changing", "operate": "Running it"}
JSON = "application/json"
SESSION = "/agents/{agent_id}/sessions/{session_id}"
Tree = dict[str, Any]


def page() -> str:
    """The whole page."""
    described = description()
    groups = by_tag(described)
    common = problems_of_all([told for routes in groups.values() for *_, told in routes])
    rows = [row(status, words) for status, words in common.items()]
    parts = [HEAD, "\n".join(["| status | |", "| --- | --- |", *rows]), "\n"]
    for tag, routes in groups.items():
        parts.append(f"\n## {TITLES.get(tag, tag.capitalize())}\n")
        parts += (route(method, path, told, common) for path, method, told in routes)
    parts.append("\n## Shapes\n")
    schemas = described["components"]["schemas"]
    parts += (shape(name, schemas[name]) for name in sorted(schemas))
    return "".join(parts)


def description() -> Tree:
    """What the server says of itself."""

    async def asked() -> Tree:
        async with holdfast.open_state_store("memory:") as store:
            return create_app(store).openapi()

    return asyncio.run(asked())


def by_tag(described: Tree) -> dict[str, list[tuple[str, str, Tree]]]:
    """The routes in groups, each in the order in which they were declared."""
    groups: dict[str, list[tuple[str, str, Tree]]] = {}
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            groups.setdefault(told.get("tags", ["other"])[0], []).append((path, method, told))
    return groups


def problems_of_all(routes: list[Tree]) -> dict[str, str]:
    """The problems that every route may answer with, which are told once."""
    first, *others = ({**told["responses"]} for told in routes)
    shared = {status for status in first if all(status in each for each in others)}
    return {
        status: told["description"]
        for status, told in first.items()
        if status in shared and "application/problem+json" in told.get("content", {})
    }


def route(method: str, path: str, told: Tree, common: dict[str, str]) -> str:
    """One route: what it does, takes and answers."""
    parts = [
        f"\n### {method.upper()} {path.replace(SESSION, '…')}",
        told.get("description", "").replace("``", "`").strip(),
    ]
    if parameters := told.get("parameters"):
        rows = [parameter(each) for each in parameters]
        parts.append("\n".join(["| takes | in | | type |", "| --- | --- | --- | --- |", *rows]))
    if body := told.get("requestBody"):
        parts.append("Body: " + "; ".join(contents(body["content"])))
    own = {status: each for status, each in told["responses"].items() if status not in common}
    rows = [answer(status, each) for status, each in own.items()]
    parts.append("\n".join(["| answers | | body |", "| --- | --- | --- |", *rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def parameter(told: Tree) -> str:
    """A row about one parameter."""
    name = f"`{told['name']}`" + (", required" if told.get("required") else "")
    default = told["schema"].get("default")
    without = "" if default is None else f" `{str(default).lower()}` without it."
    return row(
        name, told["in"], one_line(told.get("description", "")) + without, kind(told["schema"])
    )


def answer(status: str, told: Tree) -> str:
    """A row about one answer."""
    said = told["description"]
    words = "it was done" if said == "Successful Response" else said
    return row(status, one_line(words), "; ".join(contents(told.get("content", {}))))


def contents(content: Tree) -> Iterator[str]:
    """What a body may be."""
    for media, told in content.items():
        shown = kind(told.get("schema", {}))
        if "ProblemShape" in shown:
            yield shown
        else:
            yield f"{shown} as `{media}`" if media != JSON else shown


def shape(name: str, schema: Tree) -> str:
    """One shape with its fields."""
    parts = [f"\n### {name}"]
    if told := schema.get("description"):
        parts.append(told.replace("``", "`").strip())
    fields = schema.get("properties", {})
    if fields:
        needed = set(schema.get("required", ()))
        rows = [
            row(
                f"`{field}`" + ("" if field in needed else ", may be missing"),
                kind(each),
                one_line(each.get("description", "")),
            )
            for field, each in fields.items()
        ]
        parts.append("\n".join(["| field | type | |", "| --- | --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def kind(schema: Tree) -> str:
    """A type in words, with a link where it is a shape of its own."""
    if reference := schema.get("$ref"):
        name = reference.rsplit("/", maxsplit=1)[-1]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            kinds = dict.fromkeys(kind(each) for each in schema[several])
            return " or ".join(kinds)
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    match schema.get("type"):
        case "array":
            return f"list of {kind(schema.get('items', {}))}"
        case "null":
            return "null"
        case None:
            return "anything"
        case simple:
            return bounded(str(simple), schema)


def bounded(words: str, schema: Tree) -> str:
    """A simple type with its limits."""
    low = schema.get("minimum", schema.get("minLength"))
    high = schema.get("maximum", schema.get("maxLength"))
    if pattern := schema.get("pattern"):
        return f"{words} like `{pattern}`"
    if low is not None and high is not None:
        return f"{words}, {low} to {high}"
    if low is not None:
        return f"{words}, at least {low}"
    return words if high is None else f"{words}, at most {high}"


def one_line(text: str) -> str:
    """A text that fits into a row."""
    return " ".join(text.split())


def row(*cells: str) -> str:
    """A row of a table, in which a bar would end a cell."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
