"""ASGI middlewares, from the outermost to the innermost.

EncodedPathMiddleware      keep paths percent-encoded, so that an id may contain a slash
AccessLogMiddleware        count and log every request
SecurityHeadersMiddleware  let a browser run nothing but the viewer's own files
HeadMiddleware             answer HEAD as GET, without the body
CORSMiddleware             Starlette's; only if origins are allowed
ErrorMiddleware            turn errors into problem documents
AuthMiddleware             check the token before a byte of the body is read
LimitsMiddleware           bound the body's size and the time to the response
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from urllib.parse import quote, unquote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.server.auth import AUTHORITY, Tokens, get_authority
from holdfast.server.event_stream import HEAD_ONLY
from holdfast.server.limits import MEGABYTE, Limits
from holdfast.server.metrics import Metrics
from holdfast.server.problems import Problem, ResponseCutError, internal_error

logger = logging.getLogger(__name__)
access_log = logging.getLogger("holdfast.access")

PUBLIC = ("/", "/docs", "/openapi.json", "/access", "/health/live", "/health/ready")
VIEWER = "/viewer/"
DOCUMENTS = "/agents/snapshot/restore"
"""The only path that accepts documents."""
UPLOADS = re.compile("/agents/[^/]+/sessions/[^/]+/blobs")
"""The path that accepts attachments."""
MAX_OTHER_BODY = MEGABYTE
"""Bytes of a body for any other path: those bodies are parsed on the event loop."""
MIN_UPLOAD_RATE = 1 << 16
"""Bytes per second that an upload must have; each byte that arrives gives it more time."""
READ_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
PATH_BYTE = re.compile("%[0-9A-Fa-f]{2}|.", re.DOTALL)
MAX_LOGGED_PATH = 500
MAX_LENGTH_DIGITS = 18
"""Digits of a Content-Length; parsing a longer number is slow."""
CLIENT_CLOSED = 499
"""The status in the log of a request that got no response."""

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


RAW_SECURITY_HEADERS = {
    name.lower().encode(): value.encode() for name, value in SECURITY_HEADERS.items()
}


class Middleware:
    """Base class: passes everything but HTTP requests through."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "http":
            await self.handle(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        raise NotImplementedError


# ------------------------------------------------------------------------------------------ paths


class EncodedPathMiddleware(Middleware):
    """Route by the percent-encoded path. Routes decode the ids they take out of it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Replace the decoded path in a copy of the scope."""
        path = encoded_path(scope)
        scope = {**scope, "path": path, "root_path": encoded_root(scope, path)}
        await self.app(scope, receive, send)


def encoded_path(scope: Scope) -> str:
    """Return the path as it was sent, or, if an outer app rewrote it, the rewritten one."""
    raw, path = scope.get("raw_path"), scope["path"]
    sent: str = "" if raw is None else raw.decode("ascii", "backslashreplace")
    decoded = unquote(sent) if "%" in sent else sent
    return sent if decoded == path else quote(path, errors="replace")


def encoded_root(scope: Scope, path: str) -> str:
    """Return the prefix that the app is mounted at, encoded the way the client encoded it."""
    root: str = scope.get("root_path", "")
    if not root:
        return root
    start = "".join(PATH_BYTE.findall(path)[: len(root.encode(errors="replace"))])
    return start if unquote(start) == root else quote(root, errors="replace")


def path_in_app(scope: Scope) -> str:
    """Return the path below the prefix that the app is mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope["root_path"])


# ---------------------------------------------------------------------------------------- responses


class AccessLogMiddleware(Middleware):
    """Count and log each request, without its query and its headers."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        super().__init__(app)
        self._metrics = metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and log its outcome."""
        method, started = scope["method"], time.perf_counter()
        status, size = CLIENT_CLOSED, 0

        async def send_counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, send_counted)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "-")
            self._metrics.count_request(method, route, status, seconds)
            client, authority = scope.get("client"), scope.get(AUTHORITY)
            access_log.info(
                "%s %s %s %d %d bytes %.1f ms %s",
                client[0] if client else "-",
                method,
                scope["path"][:MAX_LOGGED_PATH],
                status,
                size,
                seconds * 1000,
                authority.name if authority else "-",
            )


class SecurityHeadersMiddleware(Middleware):
    """Add security headers to every response, and forbid caching by default."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and complete the headers of the response."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                missing = RAW_SECURITY_HEADERS.keys() - {name.lower() for name, _ in headers}
                added = [(name, RAW_SECURITY_HEADERS[name]) for name in missing]
                message = {**message, "headers": [*headers, *added]}
            await send(message)

        await self.app(scope, receive, send_with_headers)


class HeadMiddleware(Middleware):
    """Answer HEAD as GET, without the body."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a HEAD request on as GET."""
        if scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        scope["method"] = "GET"
        scope[HEAD_ONLY] = True

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self.app(scope, receive, send_without_body)


class ErrorMiddleware(Middleware):
    """Answer errors with problem documents, as long as no response has started."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; respond if it raises."""
        started = False
        body_received = not announces_body(Headers(scope=scope))

        async def receive_tracked() -> Message:
            nonlocal body_received
            message = await receive()
            if message["type"] == "http.request":
                body_received = not message.get("more_body", False)
            return message

        async def send_tracked(message: Message) -> None:
            nonlocal started
            started = True
            try:
                await send(message)
            except Exception as error:
                # Servers raise errors of their own when the client hung up or broke the protocol.
                raise ClientDisconnect(f"{type(error).__name__}: {error}") from error

        try:
            try:
                await self.app(scope, receive_tracked, send_tracked)
            except (ClientDisconnect, ResponseCutError):
                raise
            except Exception as error:
                problem = error if isinstance(error, Problem) else internal_error(error)
                if problem is not error:
                    logger.exception("%s failed", request_name(scope))
                if started:
                    raise problem from error
                response = problem.response(scope["path"])
                if not body_received:
                    # The rest of the body stays unread, so the connection cannot be reused.
                    response.headers["Connection"] = "close"
                await response(scope, receive_tracked, send_tracked)
        except ClientDisconnect:
            logger.info("%s: client disconnected", request_name(scope))
        except ResponseCutError as error:
            # The server closes the connection of a response that is not complete.
            logger.error("%s: response was cut: %s", request_name(scope), error)  # noqa: TRY400


def request_name(scope: Scope) -> str:
    """Return what a request is called in the log."""
    return f"{scope['method']} {scope['path'][:MAX_LOGGED_PATH]}"


def announces_body(headers: Headers) -> bool:
    """Return whether a request says that a body follows its headers."""
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


# ----------------------------------------------------------------------------------------- requests


class AuthMiddleware(Middleware):
    """Check the token, and that pages of other origins do not write."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens, origins: tuple[str, ...] = ()) -> None:
        super().__init__(app)
        self._tokens = tokens
        self._origins = origins

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if its sender may do what it asks for."""
        connection = HTTPConnection(scope)
        scope[AUTHORITY] = self._tokens.authority(connection)
        writes = scope["method"] not in READ_METHODS
        path = path_in_app(scope)
        if path not in PUBLIC and not path.startswith(VIEWER):
            self._tokens.check(get_authority(connection), writes=self.needs_write(scope))
        origin = connection.headers.get("origin")
        if writes and origin is not None and not self._is_allowed(origin, connection):
            raise Problem(
                403,
                f"pages of {origin} must not write to this server",
                hint="start the server with --cors for that origin to allow it",
            )
        await self.app(scope, receive, send)

    def needs_write(self, scope: Scope) -> bool:
        """Return whether a request needs a token with write scope."""
        return scope["method"] not in READ_METHODS

    def _is_allowed(self, origin: str, connection: HTTPConnection) -> bool:
        """Return whether an origin is this server's own or one that was allowed."""
        try:
            host = urlsplit(origin).netloc
        except ValueError:
            return False
        return host == connection.headers.get("host") or origin in self._origins


class LimitsMiddleware(Middleware):
    """Bound the size of a request's body and the time until its response starts."""

    def __init__(self, app: ASGIApp, *, limits: Limits) -> None:
        super().__init__(app)
        self._limits = limits

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on within its limits."""
        is_upload = scope["method"] == "POST" and UPLOADS.fullmatch(path_in_app(scope)) is not None
        max_bytes = self._max_body(scope, is_upload=is_upload)
        too_large = upload_too_large if is_upload else body_too_large
        headers = Headers(scope=scope)
        check_content_length(headers.get("content-length"), max_bytes, too_large)
        received, body_received, started = 0, not announces_body(headers), False
        rejected: Problem | None = None

        async def receive_bounded() -> Message:
            nonlocal received, body_received, rejected
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                body_received = not message.get("more_body", False)
                # Once the response has started, nothing keeps what still arrives.
                if received > max_bytes and not started:
                    rejected = too_large("is larger than that", max_bytes)
                    raise rejected
                if is_upload and not started:
                    timeout.reschedule(begun + self._limits.seconds + received / MIN_UPLOAD_RATE)
            return message

        async def send_started(message: Message) -> None:
            nonlocal started
            if rejected is not None and not started:
                return  # the framework's own response to the exception that receive raised
            if not started:
                started = True
                timeout.reschedule(None)  # a client may read the response as slowly as it likes
            await send(message)

        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._limits.seconds) as timeout:
                await self.app(scope, receive_bounded, send_started)
        except TimeoutError:
            raise too_slow(self._limits.seconds, body_received=body_received) from None
        except Exception:
            if rejected is None:
                raise
        if rejected is not None:
            raise rejected

    def _max_body(self, scope: Scope, *, is_upload: bool) -> int:
        if is_upload:
            return self._limits.attachment_bytes
        if path_in_app(scope) == DOCUMENTS:
            return self._limits.body_bytes
        return min(self._limits.body_bytes, MAX_OTHER_BODY)


def check_content_length(
    length: str | None, max_bytes: int, too_large: Callable[[str, int], Problem]
) -> None:
    """Reject a body whose announced length exceeds the limit."""
    if length is None or not length.isdecimal():
        return
    if len(length) > MAX_LENGTH_DIGITS:
        raise too_large(f"has a length of {len(length)} digits", max_bytes)
    if int(length) > max_bytes:
        raise too_large(f"has {int(length):,} bytes", max_bytes)


def body_too_large(what: str, max_bytes: int) -> Problem:
    """Return the problem of a body that exceeds the limit."""
    return Problem(
        413,
        f"the limit for this body is {max_bytes:,} bytes, and it {what}",
        hint="send less"
        if max_bytes == MAX_OTHER_BODY
        else "start the server with a larger --max-body, or import with the command line",
    )


def upload_too_large(what: str, max_bytes: int) -> Problem:
    """Return the problem of an attachment that exceeds the limit."""
    return Problem(
        413,
        f"the limit for an attachment is {max_bytes:,} bytes, and it {what}",
        hint="start the server with a larger --max-attachment, or use session.attach()",
    )


def too_slow(seconds: float, *, body_received: bool) -> Problem:
    """Return the problem of a request that took too long to arrive or to be answered."""
    if not body_received:
        return Problem(
            408,
            f"the request did not arrive within {seconds:g} s",
            hint="send it faster, or start the server with a longer --timeout",
        )
    return Problem(
        503,
        f"the request took longer than {seconds:g} s and was cancelled",
        hint="ask for less, or start the server with a longer --timeout",
    )
