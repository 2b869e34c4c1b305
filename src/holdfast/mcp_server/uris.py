"""Resource URIs: sessions and snapshots. Ids are percent-encoded, so any id works."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlsplit

from holdfast.errors import NotFoundError, short_repr
from holdfast.snapshots.keys import validate_id, validate_snapshot_id

SCHEME = "holdfast"
AGENT_TEMPLATE = "holdfast://agents/{agent}"
SESSION_TEMPLATE = "holdfast://agents/{agent}/sessions/{session}{?before}"
SNAPSHOT_TEMPLATE = "holdfast://agents/{agent}/sessions/{session}/snapshots/{snapshot}{?before}"
MAX_URI = 8000


@dataclass(frozen=True, slots=True)
class ResourceUri:
    """What the URI of a resource names."""

    agent: str
    session: str | None = None
    snapshot: str | None = None
    before: int | None = None
    """Show messages before this number; None for the last ones."""

    def __str__(self) -> str:
        text = f"{SCHEME}://agents/{quote(self.agent, safe='')}"
        if self.session is not None:
            text += f"/sessions/{quote(self.session, safe='')}"
        if self.snapshot is not None:
            text += f"/snapshots/{self.snapshot}"
        return text if self.before is None else f"{text}?before={self.before}"


def parse_uri(text: str) -> ResourceUri:
    """Parse the URI of a resource.

    Raises:
        NotFoundError: It is not the URI of a resource of this server.

    """
    unknown = NotFoundError(
        f"no resource {short_repr(text)}; use {SESSION_TEMPLATE.removesuffix('{?before}')} or "
        f"{SNAPSHOT_TEMPLATE.removesuffix('{?before}')} with percent-encoded ids"
    )
    if len(text) > MAX_URI:
        raise unknown
    try:
        parts = urlsplit(text)
        names = [unquote_to_bytes(part).decode() for part in parts.path.split("/")[1:]]
        query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query), max_num_fields=1))
        before = int(query.pop("before")) if "before" in query else None
        is_ours = (parts.scheme, parts.netloc, parts.fragment) == (SCHEME, "agents", "")
        if not is_ours or query or (before is not None and before < 0):
            raise unknown
        validate_id(names[0], "agent")
        match names[1:]:
            case []:
                return ResourceUri(names[0], before=before)
            case ["sessions", session]:
                return ResourceUri(names[0], validate_id(session, "session"), None, before)
            case ["sessions", session, "snapshots", snapshot]:
                snapshot = validate_snapshot_id(snapshot)
                return ResourceUri(names[0], validate_id(session, "session"), snapshot, before)
    except (IndexError, ValueError):
        raise unknown from None
    raise unknown
