"""What every request passes before a route sees it, and every answer on its way out.

Paths stay percent-encoded until a route takes an id out of them, so that an id may hold a slash.
Tokens are looked at before a byte of the body is read. Bodies are bounded in size and time. Answers
carry headers that let a browser run nothing but the viewer's own files.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.server.auth import AUTHORITY, Authority, Tokens
from holdfast.server.metrics import Metrics
from holdfast.server.problems import Problem, failure

logger = logging.getLogger(__name__)
access_log = logging.getLogger("holdfast.access")

PUBLIC = ("/", "/docs", "/openapi.json", "/access", "/health/live", "/health/ready")
READS = frozenset(("GET", "HEAD", "OPTIONS"))
MEGABYTE = 1 << 20
DOCUMENTS = "/agents/snapshot/restore"
"""The one path that takes documents."""
LARGEST_OTHER = MEGABYTE
"""Bytes of a body for any other path: those are read as JSON at once, while all others wait."""
BYTE = re.compile("%[0-9A-Fa-f]{2}|.", re.DOTALL)
"""One byte of a path, encoded or not."""
MOST_DIGITS = 18
"""Of a length; a longer number is no length of anything, and long ones take long to read."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may cost: bytes of its body, and seconds until the answer begins."""

    body_bytes: int = 64 * MEGABYTE
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.body_bytes < 1 or not self.seconds > 0:
            raise ValueError(
                f"a limit is more than nothing, not {self.body_bytes} bytes, {self.seconds} s"
            )


class Gate:
    """The outermost part of the app."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens,
        limits: Limits,
        metrics: Metrics,
        origins: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._limits = limits
        self._metrics = metrics
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = encoded_path(scope)
        scope = {**scope, "path": path, "root_path": encoded_root(scope, path)}
        passage = Passage(scope, receive, send, self._limits_of(scope), self._origins)
        if passage.method == "HEAD":
            # It is answered as GET is, and the body stays here.
            scope["method"] = "GET"
        started = time.perf_counter()
        connection = HTTPConnection(scope)
        authority = self._tokens.authority(connection)
        scope[AUTHORITY] = authority
        try:
            self._check(connection, scope, authority)
            passage.check_length(connection.headers.get("content-length"))
            async with asyncio.timeout(self._limits.seconds) as passage.clock:
                await self._app(scope, passage.receive, passage.send)
            if passage.refused is not None:
                raise passage.refused
        except Problem as problem:
            await passage.answer(problem)
        except TimeoutError:
            await passage.answer(passage.too_slow())
        except ClientDisconnect:
            passage.log_gone()
        except Exception as error:
            # What was refused may have become another error on its way through the framework.
            if passage.refused is None:
                logger.exception("%s %s failed", passage.method, scope["path"][:500])
            await passage.answer(passage.refused or failure(error))
        finally:
            self._note(scope, passage, authority, time.perf_counter() - started)

    def _limits_of(self, scope: Scope) -> Limits:
        """Return what a request may cost. What is not a document need not be large."""
        if scope["path"].removeprefix(scope["root_path"]) == DOCUMENTS:
            return self._limits
        return replace(self._limits, body_bytes=min(self._limits.body_bytes, LARGEST_OTHER))

    def _check(self, connection: HTTPConnection, scope: Scope, authority: Authority) -> None:
        writes = scope["method"] not in READS
        path = scope["path"].removeprefix(scope["root_path"])
        if path not in PUBLIC and not path.startswith("/viewer/") and not self._is_preflight(scope):
            self._tokens.check(authority, writes=writes)
        origin = connection.headers.get("origin")
        if writes and origin is not None and not self._is_own(origin, connection):
            raise Problem(
                403,
                f"this request comes from a page of {origin}, which may not write here",
                hint="start the server with --cors for that origin, if it is yours",
            )

    def _is_preflight(self, scope: Scope) -> bool:
        return bool(self._origins) and scope["method"] == "OPTIONS"

    def _is_own(self, origin: str, connection: HTTPConnection) -> bool:
        """Whether a page that sends a request is the viewer, or of those that were allowed."""
        try:
            named = urlsplit(origin).netloc
        except ValueError:
            return False
        return named == connection.headers.get("host") or origin in self._origins

    def _note(self, scope: Scope, passage: Passage, authority: Authority, seconds: float) -> None:
        """Count a request and write it down: neither its query nor any of its headers."""
        route = getattr(scope.get("route"), "path", "-")
        self._metrics.count(passage.method, route, passage.status, seconds)
        client = scope.get("client")
        access_log.info(
            "%s %s %s %d %d bytes %.1f ms %s",
            client[0] if client else "-",
            passage.method,
            scope["path"][:500],
            passage.status,
            passage.bytes_sent,
            seconds * 1000,
            authority.name,
        )


class Passage:
    """One request on its way in, and its answer on its way out."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        limits: Limits,
        origins: Sequence[str] = (),
    ) -> None:
        self.method: str = scope["method"]
        self.status = 499
        """As if the other side had gone away, until something is answered."""
        self.bytes_sent = 0
        self.clock: asyncio.Timeout | None = None
        self.refused: Problem | None = None
        """Why the rest of the body was not read. The framework would make another error of it."""
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limits = limits
        self._origins = origins
        self._received = 0
        self._all_received = not announces_body(Headers(scope=scope))
        self._begun = False

    def check_length(self, length: str | None) -> None:
        """Refuse a body that says of itself that it is too large."""
        if length is None or not length.isdecimal():
            return
        if len(length) > MOST_DIGITS:
            raise self.too_large(f"has a number of bytes with {len(length)} digits")
        if int(length) > self._limits.body_bytes:
            raise self.too_large(f"has {int(length):,} bytes")

    async def receive(self) -> Message:
        """The next part of the body, as long as it is not too much."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self._all_received = not message.get("more_body", False)
            # Once an answer has begun, nobody keeps what still arrives.
            if self._received > self._limits.body_bytes and not self._begun:
                self.refused = self.too_large("has more")
                raise self.refused
        return message

    async def send(self, message: Message) -> None:
        """A part of the answer. Once it has begun, it may take as long as the other side reads."""
        if self.refused is not None and not self._begun:
            return
        if message["type"] == "http.response.start":
            self._begun = True
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
            if self.clock is not None:
                self.clock.reschedule(None)
                self.clock = None
        else:
            if self.method == "HEAD":
                message = {**message, "body": b""}
            self.bytes_sent += len(message.get("body", b""))
        try:
            await self._send(message)
        except Exception as error:
            # The server raises what it likes where the other side broke the rules, or hung up.
            raise ClientDisconnect(f"{type(error).__name__}: {error}") from error

    async def answer(self, problem: Problem) -> None:
        """Answer with a problem; too late where an answer has begun."""
        self.clock = None
        self.refused = None
        if self._begun:
            raise problem
        response = problem.response(self._scope["path"])
        if not self._all_received:
            # The rest of the body is not read, so nothing else can follow on this connection.
            response.headers["Connection"] = "close"
        origin = Headers(scope=self._scope).get("origin")
        if origin is not None and origin in self._origins:
            # So that a page that may use it also learns of a refusal.
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Vary"] = "Origin"
        try:
            await response(self._scope, self.receive, self.send)
        except ClientDisconnect:
            self.log_gone()

    def log_gone(self) -> None:
        """Note that there is nobody to answer."""
        path = self._scope["path"][:500]
        logger.info("%s %s: the other side went away", self.method, path)

    def too_large(self, what: str) -> Problem:
        """The problem of a body that is too large."""
        return Problem(
            413,
            f"the body {what}, and {self._limits.body_bytes:,} bytes are taken",
            hint="start the server with a larger --max-body, or import with the command line"
            if self._limits.body_bytes != LARGEST_OTHER
            else "send less",
        )

    def too_slow(self) -> Problem:
        """The problem of a request that took too long: to arrive, or to be answered."""
        if not self._all_received:
            return Problem(
                408,
                f"the request did not arrive within {self._limits.seconds:g} s",
                hint="send it faster, or start the server with a longer --timeout",
            )
        return Problem(
            503,
            f"this took longer than {self._limits.seconds:g} s, and was given up",
            hint="ask for less, or start the server with a longer --timeout",
        )


def announces_body(headers: Headers) -> bool:
    """Whether a request says that something follows its headers."""
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def encoded_path(scope: Scope) -> str:
    """The path as it was sent: percent-encoded, so that a slash in an id is none in the path.

    Where somebody in between gave it another path, that one counts.
    """
    raw, path = scope.get("raw_path"), scope["path"]
    sent = "" if raw is None else raw.decode("ascii", "backslashreplace")
    return sent if unquote(sent) == path else quote(path, errors="replace")


def encoded_root(scope: Scope, path: str) -> str:
    """The prefix that the app is mounted below, as an encoded path begins with it.

    Who sends a path chooses what of it is encoded, also of the prefix.
    """
    root: str = scope.get("root_path", "")
    if not root:
        return root
    start = "".join(BYTE.findall(path)[: len(root.encode(errors="replace"))])
    return start if unquote(start) == root else quote(root, errors="replace")
