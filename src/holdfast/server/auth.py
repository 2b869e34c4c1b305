"""Tokens with a scope, optionally limited to agents.

What a request names is checked against its token before anything is looked up. Without tokens the
server answers local requests only.
"""

from __future__ import annotations

import hashlib
import hmac
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from starlette.requests import HTTPConnection

from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.server.loopback import explain_remote
from holdfast.server.problems import Problem
from holdfast.snapshots.keys import validate_id

Scope: TypeAlias = Literal["read", "write"]
TOKEN_SCOPES: tuple[Scope, ...] = ("read", "write")
MIN_SECRET_LENGTH = 16
AUTHORITY = "holdfast.authority"
FIELDS = frozenset(("name", "secret", "scope", "agents"))


@dataclass(frozen=True, slots=True)
class Token:
    """A secret that authorizes requests.

    ``scope`` is ``"read"`` or ``"write"``, which includes reading. ``agents`` limits the token to
    these agents. ``name`` appears in the access log.

    Raises:
        TypeError: ``agents`` is not a set of ids.
        ValueError: The secret is too short or not printable ASCII, or the scope is unknown.

    """

    secret: str = field(repr=False)
    scope: Scope = "write"
    agents: frozenset[str] | None = None
    name: str = "token"

    def __post_init__(self) -> None:
        if not isinstance(self.secret, str) or len(self.secret) < MIN_SECRET_LENGTH:
            raise ValueError(
                f"token secret must have at least {MIN_SECRET_LENGTH} characters; create one with "
                "secrets.token_urlsafe()"
            )
        if not self.secret.isascii() or not self.secret.isprintable() or " " in self.secret:
            raise ValueError("token secret must be printable ASCII without spaces")
        if self.scope not in TOKEN_SCOPES:
            raise ValueError(f"token scope must be read or write, got {short_repr(self.scope)}")
        if not self.name.isprintable():
            raise ValueError(f"token name must be printable, got {short_repr(self.name)}")
        given: object = self.agents
        if self.agents is not None:
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise TypeError(f"agents must be a set of ids, got {short_repr(given)}")
            names = frozenset(validate_id(each, "agent_id") for each in self.agents)
            object.__setattr__(self, "agents", names)


@dataclass(frozen=True, slots=True)
class Authority:
    """What the sender of a request may do."""

    scope: Scope | None
    agents: frozenset[str] | None = None
    name: str = "-"
    token: int = -1
    """The number of the token, from 0; -1 without one."""
    refusal: str | None = None
    """Why a request without a token is not considered local."""

    def allows(self, agent_id: str) -> bool:
        """Return whether it covers an agent."""
        return self.agents is None or agent_id in self.agents

    def check(self, *agent_ids: str) -> None:
        """Reject agents that it does not cover, whether they exist or not."""
        for agent_id in agent_ids:
            if not self.allows(agent_id):
                raise Problem(
                    403,
                    f"token {self.name!r} does not cover agent {short_repr(agent_id)}",
                    hint="use a token that covers this agent",
                )

    def check_unlimited(self, why: str = "the request is about all agents") -> None:
        """Reject a token that is limited to agents."""
        if self.agents is not None:
            raise Problem(
                403,
                f"token {self.name!r} is limited to some agents, and {why}",
                hint="use a token for all agents",
            )


LOCAL_AUTHORITY = Authority("write", name="this machine")
NO_AUTHORITY = Authority(None)


class Tokens:
    """The tokens of a server. Without any, only local requests are allowed."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._tokens = [(hash_secret(token.secret), token) for token in tokens]
        if len({known for known, _ in self._tokens}) < len(self._tokens):
            raise ValueError("two tokens have the same secret")

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def authority(self, connection: HTTPConnection) -> Authority:
        """Return what the token of a request allows."""
        if not self._tokens:
            refusal = explain_remote(connection)
            return LOCAL_AUTHORITY if refusal is None else Authority(None, refusal=refusal)
        kind, _, secret = connection.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return NO_AUTHORITY
        given = hash_secret(secret.strip())
        found = NO_AUTHORITY
        # Compare all digests, so that timing reveals nothing about the secrets.
        for number, (known, token) in enumerate(self._tokens):
            if hmac.compare_digest(given, known):
                found = Authority(token.scope, token.agents, token.name, number)
        return found

    def check(self, authority: Authority, *, writes: bool) -> None:
        """Reject a request that the authority does not allow."""
        if authority.scope is None:
            raise Problem(
                401,
                "a valid token is required"
                if self._tokens
                else "a server without tokens answers local requests only, and this one may be "
                f"remote: {authority.refusal}",
                hint="send the header Authorization: Bearer TOKEN"
                if self._tokens
                else "start the server with --token, or connect to it directly by 127.0.0.1",
                headers={"WWW-Authenticate": 'Bearer realm="holdfast"'},
            )
        if writes and authority.scope != "write":
            raise Problem(
                403,
                f"token {authority.name!r} is read-only",
                hint="use a token with write scope",
            )


def hash_secret(secret: str) -> bytes:
    """Return the digest that is compared instead of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def get_authority(connection: HTTPConnection) -> Authority:
    """Return what a request may do, as AuthMiddleware determined it."""
    return cast("Authority", connection.scope[AUTHORITY])


# ------------------------------------------------------------------------------------- from files


def read_tokens(path: str | Path) -> list[Token]:
    """Read tokens from a TOML file with a table ``[[token]]`` per token.

    Raises:
        InvalidDocumentError: The file cannot be read or is invalid.

    """
    source = Path(path)
    try:
        tree = tomllib.loads(source.read_text("utf-8"))
    except OSError as error:
        raise InvalidDocumentError(f"cannot read {source}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidDocumentError(f"{source} is not TOML: {error}") from error
    tables = tree.get("token")
    if set(tree) != {"token"} or not isinstance(tables, list) or not tables:
        raise InvalidDocumentError(
            f"invalid {source}: must contain a table [[token]] per token, with secret and "
            "optionally name, scope and agents"
        )
    return [parse_token(table, f"{source}, token {n}") for n, table in enumerate(tables, 1)]


def parse_token(table: Any, where: str) -> Token:
    """Return the token of a TOML table."""
    if not isinstance(table, dict) or "secret" not in table or not FIELDS.issuperset(table):
        raise InvalidDocumentError(
            f"{where}: must have secret, and optionally name, scope and agents"
        )
    try:
        return Token(
            table["secret"],
            table.get("scope", "write"),
            table.get("agents"),
            str(table.get("name", "token")),
        )
    except (TypeError, ValueError) as error:
        raise InvalidDocumentError(f"{where}: {error}") from error
