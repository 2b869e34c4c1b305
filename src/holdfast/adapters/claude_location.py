"""Where a transcript is stored: the ids of its session and its agent.

The agent of a main transcript is its project, and that of a sub-agent's transcript is
``<project>/<subpath>``, in the same session. In the project, ``%`` and ``/`` are percent-encoded,
so that the first slash is where the subpath starts. This module does not need the SDK.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from holdfast.errors import short_repr
from holdfast.snapshots.keys import AGENT, SnapshotLocation

MAX_PROJECT_LENGTH = 128
"""How long the project may be in the id of a sub-agent; ids have at most 256 characters."""
ESCAPED = str.maketrans({"%": quote("%"), "/": quote("/", safe="")})


def locate_transcript(key: Mapping[str, object]) -> SnapshotLocation:
    """Return where the transcript of an SDK key is stored.

    Raises:
        TypeError: The key has no text as project or session.
        ValueError: A part of the key is empty or too long.

    """
    project = require_text(key, "project_key")
    session_id = require_text(key, "session_id")
    if key.get("subpath") is None:
        return SnapshotLocation(session_id, AGENT, project.translate(ESCAPED))
    subpath = require_text(key, "subpath")
    return SnapshotLocation(session_id, AGENT, f"{subagent_prefix(project)}{subpath}")


def subagent_prefix(project: str) -> str:
    """Return what the ids of all sub-agents of a project start with."""
    return subagent_prefix_of(project.translate(ESCAPED))


def subagent_prefix_of(agent_id: str) -> str:
    """Return what the ids of all sub-agents start with, given the id of the main agent."""
    name = agent_id
    if len(name) > MAX_PROJECT_LENGTH:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = f"{name[: MAX_PROJECT_LENGTH - len(digest) - 1]}~{digest}"
    return f"{name}/"


def find_main_agent(locations: Sequence[SnapshotLocation]) -> SnapshotLocation | None:
    """Return the agent of a session whose sub-agents all others are, if there is one."""
    for main in locations:
        prefix = subagent_prefix_of(main.scope_id)
        others = [each for each in locations if each != main]
        if others and all(each.scope_id.startswith(prefix) for each in others):
            return main
    return None


def name_project(folder: str) -> str:
    """Return the project of a working directory, as Claude Code names it.

    Claude Code shortens names of more than 200 characters in a way that is not repeated here.
    """
    return re.sub(r"[^A-Za-z0-9]", "-", folder)


def require_text(key: Mapping[str, object], name: str) -> str:
    """Return a part of a key.

    Raises:
        TypeError: It is not a str.
        ValueError: It is empty.

    """
    value = key.get(name) if hasattr(key, "get") else None
    if not isinstance(value, str):
        raise TypeError(f"{name} of a session key must be a str, got {short_repr(value)}")
    if not value:
        raise ValueError(f"{name} of a session key is empty; omit it, or give its name")
    return value
