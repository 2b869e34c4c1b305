"""Read agent files of Letta, with the suffix ``.af``.

An agent file is a JSON object, in one of two forms. The new one has lists of agents, blocks, tools,
groups, files, sources and MCP servers; an agent refers to its blocks and tools by id. The old one
is a single agent, with its memory blocks in ``core_memory``. Each agent becomes a session.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from holdfast.documents.document import Document
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.importers.expect import expect_messages, expect_object, expect_objects
from holdfast.importers.history import (
    SNAPSHOT_IMPORTED,
    History,
    choose_ids,
    name_unsupported,
    parse_time,
)
from holdfast.importers.source import Source
from holdfast.snapshots.session_snapshot import utc_now
from holdfast.snapshots.session_state import SESSION, STATE, STATUS, STATUSES
from holdfast.values import encode

NAME = "letta"
NAMESPACE = "letta"
"""The namespace of Letta's own data: the agent's settings, its blocks, and parts of the file."""
PENDING, WAITING = STATUSES[0], STATUSES[2]
AGENTS, BLOCKS, TOOLS, CORE_MEMORY = "agents", "blocks", "tools", "core_memory"
SHARED = ("groups", "files", "sources", "mcp_servers")
"""Lists of the file that every session gets."""


def recognises(source: Source) -> bool:
    """Return whether this has agents, blocks and tools, or is an agent with a core memory."""
    if not source.is_json or not isinstance(source.json, dict):
        return False
    tree = source.json
    if isinstance(tree.get(AGENTS), list):
        return {BLOCKS, TOOLS} <= tree.keys()
    return isinstance(tree.get(CORE_MEMORY), list) and {"messages", "llm_config"} <= tree.keys()


def read(source: Source) -> Document | list[Document]:
    """Return the agent of an old file, or a list of the agents of a new one.

    Raises:
        InvalidDocumentError: The file is damaged, or its agents cannot be told apart.

    """
    name = source.name
    tree = expect_object(source.json, name)
    if AGENTS not in tree:
        if CORE_MEMORY not in tree:
            raise InvalidDocumentError(
                f"{name} is not a Letta agent file: it has neither {AGENTS} nor {CORE_MEMORY}"
            )
        return read_old_agent(source, tree)
    agents = expect_objects(tree[AGENTS], f"{AGENTS} of {name}")
    if source.agent_id is not None and len(agents) > 1:
        raise InvalidDocumentError(
            f"{name} has {len(agents)} agents, which cannot all become the agent "
            f"{short_repr(source.agent_id)}; omit --agent"
        )
    blocks = expect_objects(tree.get(BLOCKS) or [], f"{BLOCKS} of {name}")
    tools = expect_objects(tree.get(TOOLS) or [], f"{TOOLS} of {name}")
    shared = {each: tree[each] for each in SHARED if tree.get(each)}
    rest = {
        field: value
        for field, value in tree.items()
        if field not in (AGENTS, BLOCKS, TOOLS, *SHARED) and value not in (None, {})
    }
    if rest:
        shared["file"] = rest
    block_index = Entities(blocks, agents, "block_ids")
    tool_index = Entities(tools, agents, "tool_ids")
    meter = SharedMeter(source)
    documents = []
    for agent, agent_id in zip(agents, name_agents(agents, name), strict=True):
        own = {**shared, BLOCKS: block_index.of(agent)}
        own_tools = tool_index.of(agent)
        meter.count(shared, *own[BLOCKS], *own_tools)
        # An agent that is described for its creation has its blocks in itself.
        own[BLOCKS] += expect_objects(agent.get("memory_blocks") or [], f"blocks of {agent_id}")
        exported_at = tree.get("created_at")
        documents.append(build_document(source, agent_id, agent, own, own_tools, exported_at))
    return documents


def read_old_agent(source: Source, tree: dict[str, Any]) -> Document:
    """Return the agent of a file that has only one."""
    blocks = expect_objects(tree[CORE_MEMORY], f"{CORE_MEMORY} of {source.name}")
    tools = expect_objects(tree.get(TOOLS) or [], f"{TOOLS} of {source.name}")
    agent = {name: value for name, value in tree.items() if name not in (CORE_MEMORY, TOOLS)}
    (agent_id,) = name_agents([agent], source.name)
    return build_document(source, agent_id, agent, {BLOCKS: blocks}, tools, None)


def name_agents(agents: list[dict[str, Any]], where: str) -> list[str | None]:
    """Return the agent id for each agent: its name or, if others share it, its id.

    Raises:
        InvalidDocumentError: Two agents have the same name and id.

    """
    names = [text_or_none(each.get("name")) for each in agents]
    counts = Counter(names)
    ids = [
        name if name is not None and counts[name] == 1 else text_or_none(each.get("id")) or name
        for name, each in zip(names, agents, strict=True)
    ]
    for agent_id, count in Counter(ids).items():
        if count > 1:
            raise InvalidDocumentError(f"{where} has two agents named {short_repr(agent_id)}")
    return ids


class Entities:
    """The blocks or the tools of a file, by the agents that refer to them."""

    def __init__(
        self, entities: list[dict[str, Any]], agents: list[dict[str, Any]], field: str
    ) -> None:
        self._field = field
        self._by_id = {each["id"]: each for each in entities if text_or_none(each.get("id"))}
        referenced = {id_ for agent in agents for id_ in list_ids(agent, field)}
        self._free = [
            each for each in entities if (text_or_none(each.get("id")) or "") not in referenced
        ]

    def of(self, agent: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what an agent refers to, and what no agent refers to."""
        own = dict.fromkeys(list_ids(agent, self._field))
        return [self._by_id[id_] for id_ in own if id_ in self._by_id] + self._free


class SharedMeter:
    """Limits what sessions have in common: each has a copy, and the file has it only once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._sizes: dict[int, int] = {}
        self._total = 0

    def count(self, *values: dict[str, Any]) -> None:
        """Count the values of one session.

        Raises:
            InvalidDocumentError: The copies are larger than a document may be.

        """
        for value in values:
            if id(value) not in self._sizes:
                with name_unsupported(f"a block or tool of {self._source.name}"):
                    self._sizes[id(value)] = len(encode(value))
            self._total += self._sizes[id(value)]
        if self._total > self._source.limits.max_bytes:
            raise InvalidDocumentError(
                f"the agents of {self._source.name} share blocks and tools whose copies have more "
                f"than {self._source.limits.max_bytes} bytes; import the agents from files of "
                "their own"
            )


def list_ids(agent: dict[str, Any], field: str) -> list[str]:
    """Return the ids of what an agent refers to."""
    found = agent.get(field)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def build_document(
    source: Source,
    agent_id: str | None,
    agent: dict[str, Any],
    own: dict[str, Any],
    tools: list[dict[str, Any]],
    exported_at: object,
) -> Document:
    """Return the session of an agent, with one event per message."""
    where = f"agent {short_repr(agent_id)} of {source.name}"
    messages = expect_messages(agent.get("messages") or [], f"messages of {where}")
    times = [agent.get("created_at"), *(each.get("created_at") for each in messages), exported_at]
    began = next((each for each in times if each is not None), None)
    at = utc_now() if began is None else parse_time(began, where)
    history = History(*choose_ids(source, agent_id, source.stem), at)
    for number, message in enumerate(messages):
        place = f"message {number} of {where}"
        if message.get("created_at") is not None:
            at = parse_time(message["created_at"], place)
        history.append(message, at, place)
    if exported_at is not None:
        at = parse_time(exported_at, source.name)
    settings = {name: value for name, value in agent.items() if name not in ("messages", "system")}
    values = {
        "system": agent.get("system"),
        "model": find_model(agent),
        "memory": read_memory(own[BLOCKS]),
        TOOLS: tools,
    }
    history.add(
        SNAPSHOT_IMPORTED,
        at,
        {"format": NAME, "file": Path(source.name).name},
        {
            STATE: {name: value for name, value in values.items() if value not in (None, [], {})},
            NAMESPACE: {"agent": settings, **own},
            SESSION: {STATUS: WAITING if asks_for_approval(messages) else PENDING},
        },
        where,
    )
    return history.document(NAME)


def read_memory(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the texts of memory blocks by their labels."""
    return {each["label"]: each.get("value") for each in blocks if text_or_none(each.get("label"))}


def find_model(agent: dict[str, Any]) -> str | None:
    """Return the model of an agent, with its provider if the file names it."""
    config = agent.get("llm_config")
    fields = config if isinstance(config, dict) else {}
    named = (fields.get("handle"), agent.get("model"), fields.get("model"))
    return next((each for each in map(text_or_none, named) if each), None)


def asks_for_approval(messages: list[dict[str, Any]]) -> bool:
    """Return whether the agent waits for someone to approve a tool call."""
    if not messages:
        return False
    last = messages[-1]
    return last["role"] == "approval" and bool(last.get("tool_calls")) and not last.get("approvals")


def text_or_none(value: object) -> str | None:
    """Return a text that is not empty, or None."""
    return value if isinstance(value, str) and value else None
