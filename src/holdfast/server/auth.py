"""Who may do what: tokens with a scope, optionally for named agents only.

Knowing an id is no authority: each request carries a token, and what it names is compared with what
the token allows before anything is looked up. Without tokens the server answers this machine alone.
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
    """A secret that lets its bearer in.

    ``scope`` is ``"read"``, or ``"write"``, which includes it. ``agents`` limits it to these.
    ``name`` is what the access log calls it.
    """

    secret: str = field(repr=False)
    scope: Scope = "write"
    agents: frozenset[str] | None = None
    name: str = "token"

    def __post_init__(self) -> None:
        if not isinstance(self.secret, str) or len(self.secret) < MIN_SECRET_LENGTH:
            raise ValueError(
                f"the secret of a token has at least {MIN_SECRET_LENGTH} characters, as "
                "secrets.token_urlsafe() makes it"
            )
        if not self.secret.isascii() or not self.secret.isprintable() or " " in self.secret:
            raise ValueError("the secret of a token is printable ASCII without spaces")
        if self.scope not in TOKEN_SCOPES:
            raise ValueError(f"the scope of a token is read or write, not {short_repr(self.scope)}")
        if not self.name.isprintable():
            raise ValueError(f"the name of a token is printable, not {short_repr(self.name)}")
        given: object = self.agents
        if self.agents is not None:
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise TypeError(f"agents are a set of ids, not {short_repr(given)}")
            names = frozenset(validate_id(each, "agent_id") for each in self.agents)
            object.__setattr__(self, "agents", names)


@dataclass(frozen=True, slots=True)
class Authority:
    """What the sender of a request may do."""

    scope: Scope | None
    agents: frozenset[str] | None = None
    name: str = "-"
    refusal: str | None = None
    """Why a request without a token is not taken for one of this machine."""

    def allows(self, agent_id: str) -> bool:
        """Whether it may know of an agent."""
        return self.agents is None or agent_id in self.agents

    def check(self, *agent_ids: str) -> None:
        """Refuse agents that it is not for, whether they exist or not."""
        for agent_id in agent_ids:
            if not self.allows(agent_id):
                raise Problem(
                    403,
                    f"the token {self.name!r} is not for the agent {short_repr(agent_id)}",
                    hint="use a token that names this agent, or one for all",
                )

    def check_unlimited(self, why: str = "this is about all agents") -> None:
        """Refuse a token that is for some agents only."""
        if self.agents is not None:
            raise Problem(
                403,
                f"the token {self.name!r} is for some agents only, and {why}",
                hint="use a token for all agents",
            )


LOCAL_AUTHORITY = Authority("write", name="this machine")
NO_AUTHORITY = Authority(None)


class Tokens:
    """The tokens of a server; none at all means that only this machine may ask."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._tokens = [(hash_secret(token.secret), token) for token in tokens]
        if len({known for known, _ in self._tokens}) < len(self._tokens):
            raise ValueError(
                "two tokens have the same secret, so that it is not clear what it is for"
            )

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def authority(self, connection: HTTPConnection) -> Authority:
        """What a request's token allows; nothing without a known one."""
        if not self._tokens:
            refusal = explain_remote(connection)
            return LOCAL_AUTHORITY if refusal is None else Authority(None, refusal=refusal)
        kind, _, secret = connection.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return NO_AUTHORITY
        given = hash_secret(secret.strip())
        found = NO_AUTHORITY
        # Digests of one length, all of them compared: time tells nothing of the secrets.
        for known, token in self._tokens:
            if hmac.compare_digest(given, known):
                found = Authority(token.scope, token.agents, token.name)
        return found

    def check(self, authority: Authority, *, writes: bool) -> None:
        """Refuse who may not do what is asked for."""
        if authority.scope is None:
            raise Problem(
                401,
                "a valid token is needed"
                if self._tokens
                else "a server without tokens answers only requests from its own machine, and "
                f"this may come from another one: {authority.refusal}",
                hint="send the header Authorization: Bearer TOKEN"
                if self._tokens
                else "start the server with --token, or connect to it directly by 127.0.0.1",
                headers={"WWW-Authenticate": 'Bearer realm="holdfast"'},
            )
        if writes and authority.scope != "write":
            raise Problem(
                403,
                f"the token {authority.name!r} is for reading only",
                hint="use a token with the scope write",
            )


def hash_secret(secret: str) -> bytes:
    """What is compared in location of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def get_authority(connection: HTTPConnection) -> Authority:
    """What the sender of a request may do, as it was found when the request came in."""
    return cast("Authority", connection.scope[AUTHORITY])


# ------------------------------------------------------------------------------------- from files


def read_tokens(path: str | Path) -> list[Token]:
    """The tokens of a TOML file, with a table ``[[token]]`` for each."""
    source = Path(path)
    try:
        tree = tomllib.loads(source.read_text("utf-8"))
    except OSError as error:
        raise InvalidDocumentError(f"{source} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidDocumentError(f"{source} is not TOML: {error}") from error
    tables = tree.get("token")
    if set(tree) != {"token"} or not isinstance(tables, list) or not tables:
        raise InvalidDocumentError(
            f"{source} has a table [[token]] for each token, with a secret and, as wanted, name, "
            "scope and agents"
        )
    return [parse_token(table, f"{source}, token {n}") for n, table in enumerate(tables, 1)]


def parse_token(table: Any, where: str) -> Token:
    """A token of one table."""
    if not isinstance(table, dict) or "secret" not in table or not FIELDS.issuperset(table):
        raise InvalidDocumentError(f"{where}: it has secret, and maybe name, scope and agents")
    try:
        return Token(
            table["secret"],
            table.get("scope", "write"),
            table.get("agents"),
            str(table.get("name", "token")),
        )
    except (TypeError, ValueError) as error:
        raise InvalidDocumentError(f"{where}: {error}") from error
