"""Write the REST reference from the server's OpenAPI description.

    python -m tools.reference > build/reference/rest.md

The page docs/reference/rest.md includes the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import holdfast
from holdfast.server import create_app

SESSION = "/agents/{agent_id}/sessions/{session_id}"
"""Shortened to an ellipsis in headings."""


async def describe_server() -> dict[str, Any]:
    """Return the OpenAPI description of a server."""
    async with holdfast.open_state_store("memory:") as store:
        return create_app(store).openapi()


def list_parameters(route: dict[str, Any], schemas: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the name, the place and the description of each parameter and body field."""
    for each in route.get("parameters", ()):
        place = each["in"] + (", required" if each.get("required") else "")
        yield f"`{each['name']}`", place, each.get("description", "")
    for media, body in route.get("requestBody", {}).get("content", {}).items():
        name = body["schema"].get("$ref", "").rpartition("/")[2]
        schema = schemas.get(name, body["schema"])
        if not schema.get("properties"):
            yield "", "body", f"`{media}`"
        for field, each in schema.get("properties", {}).items():
            place = "body, required" if field in schema.get("required", ()) else "body"
            yield f"`{field}`", place, each.get("description", "")


def escape_cell(text: str) -> str:
    """Return text that fits into a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def format_reference(description: dict[str, Any]) -> str:
    """Return every route as Markdown, grouped by tag."""
    groups: dict[str, list[str]] = {}
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            lines = groups.setdefault(route["tags"][0], [])
            heading = f"### {method.upper()} {path.replace(SESSION, '…')}"
            lines += [heading, "", route.get("description", ""), ""]
            rows = list(list_parameters(route, description["components"]["schemas"]))
            if rows:
                lines += ["| parameter | in | meaning |", "| --- | --- | --- |"]
                lines += [f"| {' | '.join(map(escape_cell, row))} |" for row in rows] + [""]
    parts = (f"## {tag.capitalize()}\n\n" + "\n".join(lines) for tag, lines in groups.items())
    return "\n".join(parts)


if __name__ == "__main__":
    print(format_reference(asyncio.run(describe_server())))
