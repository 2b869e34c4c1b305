"""Distinguish local requests from those that a proxy forwards.

A server without tokens answers this machine alone. The address of the client does not suffice for
that: a reverse proxy on the same machine connects from loopback for any client. So a request
must also be addressed to loopback, must not carry any header that proxies add, and must not be
HTTP/1.0, which nginx has spoken to its upstream by default and local clients have not for twenty
years. A proxy that hides all of this cannot be recognized: behind one, configure a token.
"""

from __future__ import annotations

import ipaddress

from starlette.requests import HTTPConnection

from holdfast.errors import short_repr

LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))
TEST_CLIENT = "testclient"
"""The client host of ``starlette.testclient.TestClient``; a socket has an address."""
TEST_SERVER = "testserver"

FORWARDING_HEADERS = frozenset(
    (
        "client-ip",
        "do-connecting-ip",
        "fastly-client-ip",
        "fly-client-ip",
        "forwarded",
        "forwarded-for",
        "ngrok-auth-user-email",
        "proxy-client-ip",
        "true-client-ip",
        "via",
        "wl-proxy-client-ip",
        "x-appengine-user-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-coming-from",
        "x-forwarded",
        "x-host",
        "x-nf-client-connection-ip",
        "x-original-forwarded-for",
        "x-original-host",
        "x-original-url",
        "x-originating-ip",
        "x-proxied-by",
        "x-proxyuser-ip",
        "x-real-ip",
        "x-real-port",
        "x-remote-addr",
        "x-remote-ip",
        "x-rewrite-url",
    )
)
FORWARDING_PREFIXES = (
    "cf-",
    "cdn-",
    "fly-",
    "tailscale-",
    "x-amz-cf-",
    "x-amzn-",
    "x-arr-",
    "x-azure-",
    "x-envoy-",
    "x-forwarded-",
    "x-vercel-",
)


def is_loopback(host: str) -> bool:
    """Return whether an address or a host name is loopback."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def explain_remote(connection: HTTPConnection) -> str | None:
    """Return why a request may be remote; None if it is local."""
    for name in connection.headers:
        if name in FORWARDING_HEADERS or name.startswith(FORWARDING_PREFIXES):
            return f"header {short_repr(name)} shows that a proxy forwarded it"
    client = connection.client
    is_test = client is not None and client.host == TEST_CLIENT
    if not is_test and (client is None or not is_loopback(client.host)):
        return (
            f"it comes from {'an unknown address' if client is None else short_repr(client.host)}"
        )
    named = connection.headers.getlist("host")
    if len(named) != 1:
        return "it does not have exactly one Host header"
    host = strip_port(named[0])
    if not is_loopback(host) and not (is_test and host == TEST_SERVER):
        return f"it is addressed to {short_repr(named[0])}"
    if connection.scope.get("http_version") == "1.0":
        return "it uses HTTP/1.0, as reverse proxies do"
    return None


def strip_port(named: str) -> str:
    """Return the host of a Host header, without its port."""
    host, _, port = named.rpartition(":")
    return host if host and port.isdecimal() else named
