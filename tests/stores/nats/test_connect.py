"""NATS URLs, permissions and connection errors."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress

import pytest

import holdfast
from holdfast.errors import StateStoreError
from holdfast.stores.nats.connection import StrictClient
from holdfast.testing.state_store_suite import read_all
from servers.nats_server import Behind, Impostor, certificate
from servers.process import free_port
from support.async_tests import async_test

MEGABYTE = 1024 * 1024


async def catch_first_error(url: str, act=lambda store: store.put("a", b"1")) -> StateStoreError:
    """Return the error of a store's first use."""
    async with holdfast.open_state_store(url) as store:
        with pytest.raises(StateStoreError) as caught:
            await act(store)
    return caught.value


@async_test
async def test_an_unreachable_server_fails_at_once(caplog):
    port = free_port()
    start = asyncio.get_running_loop().time()
    error = await catch_first_error(f"nats://me:pass-w0rd@127.0.0.1:{port}/b")
    assert asyncio.get_running_loop().time() - start < 3
    assert "Connect call failed" in str(error)
    assert "check that the server is running" in str(error)
    assert (error.transient, error.unknown) == (True, False)
    assert "pass-w0rd" not in str(error) + repr(error.__cause__) + caplog.text
    assert not caplog.records


@async_test
async def test_one_of_several_servers_is_enough(nats_server, bucket):
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{nats_server.port}"
    async with holdfast.open_state_store(f"nats://{hosts}/{bucket}") as store:
        await store.put("a", b"1")
        assert await read_all(store) == {"a": b"1"}


USERS = """
accounts {
  STATE {
    jetstream: enabled
    users: [
      {user: "m@n", password: "p:@/%#w0rd"}
      {user: reader, password: r3ader-word, permissions: {
        publish: ["$JS.API.STREAM.INFO.>", "$JS.API.STREAM.MSG.GET.>", "$JS.API.CONSUMER.>"]
        subscribe: "_INBOX.>"
      }}
      {user: agent, password: "4gent-word", permissions: {
        publish: [
          "$KV.state.>"
          "$JS.API.STREAM.INFO.KV_state"
          "$JS.API.STREAM.CREATE.KV_state"
          "$JS.API.STREAM.MSG.GET.KV_state"
          "$JS.API.STREAM.PURGE.KV_state"
          "$JS.API.CONSUMER.CREATE.KV_state.>"
          "$JS.API.CONSUMER.DELETE.KV_state.*"
          "$JS.API.CONSUMER.MSG.NEXT.KV_state.*"
        ]
        subscribe: "_INBOX.>"
      }}
      {user: deaf, password: d3af-w0rd, permissions: {subscribe: "elsewhere"}}
    ]
  }
  PLAIN { users: [{user: plain, password: pl4in-word}] }
}
"""


@async_test
async def test_permissions_of_users_are_enforced_and_explained(own_server, bucket):
    server = own_server(USERS)
    owner, reader = "m@n:p:@/%#w0rd", "reader:r3ader-word"
    error = await catch_first_error(server.url(bucket, user=reader))
    assert f"may not publish to $JS.API.STREAM.CREATE.KV_{bucket}" in str(error)
    assert f"create the bucket {bucket} with another user first" in str(error)
    assert not error.transient
    async with (
        holdfast.open_state_store(server.url(bucket, user=owner)) as store,
        holdfast.open_state_store(server.url(bucket, user=reader)) as watching,
    ):
        await store.put("a", b"1")
        assert await read_all(watching) == {"a": b"1"}
        for act in (lambda: watching.put("a", b"2"), lambda: watching.delete("a")):
            with pytest.raises(StateStoreError, match=r"may not publish to \$KV") as caught:
                await act()
            assert not caught.value.unknown
        assert await read_all(store) == {"a": b"1"}
    assert "_INBOX" in str(await catch_first_error(server.url(bucket, user="deaf:d3af-w0rd")))
    error = await catch_first_error(server.url(bucket, user="plain:pl4in-word"))
    assert "has no JetStream for this user" in str(error)
    for user in ("m@n:wr0ng-word", "unkn0wn:s3cret-word", "t0ken-unknown"):
        error = await catch_first_error(server.url(bucket, user=user))
        assert "password" in str(error)
        assert not {"wr0ng-word", "s3cret-word", "t0ken-unknown"} & set(
            re.split(r"[^\w-]", f"{error} {error!r} {error.__cause__!r}")
        )


@async_test
async def test_the_documented_permissions_are_sufficient(own_server):
    server = own_server(USERS)
    url = server.url("state", user="agent:4gent-word")
    async with (
        holdfast.open_state_store(url) as store,
        Behind(server.url("state", user="m@n:p:@/%#w0rd")) as behind,
    ):
        etag = await store.put("a/b", b"x" * MEGABYTE, if_absent=True)
        await store.put("a/b", b"1", if_match=etag)
        await store.put("a/" + "long" * 300, b"2")
        assert len(await read_all(store)) == 2
        assert await store.delete("a/b")
        assert await behind.chunks() == set()
        assert await store.sweep(older_than=0) == 0


@async_test
async def test_a_token_is_a_secret(own_server, bucket):
    server = own_server('authorization { token: "t0ken/of:mine" }')
    url = server.url(bucket, user="t0ken/of").replace("t0ken%2Fof", "t0ken%2Fof%3Amine")
    async with holdfast.open_state_store(url) as store:
        await store.put("a", b"1")
        assert await read_all(store) == {"a": b"1"}
        assert "***@127.0.0.1" in repr(store)
        assert "t0ken" not in repr(store)


@async_test
async def test_a_server_without_jetstream_is_reported(own_server, bucket):
    error = await catch_first_error(own_server(jetstream=False).url(bucket))
    assert "JetStream is not enabled (nats-server -js)" in str(error)
    assert not error.unknown


@async_test
async def test_more_replicas_than_servers_are_rejected(nats_server, bucket):
    error = await catch_first_error(nats_server.url(bucket, replicas=3))
    assert "replicas > 1 not supported" in str(error)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nats:///bucket", "has no host"),
        ("nats://host/a/b", "letters, digits"),
        ("nats://host/a.b", "letters, digits"),
        ("nats://host/" + "x" * 201, "at most 200"),
        ("nats://host/b?replicas=2.5", "whole number from 1 to 5"),
        ("nats://host/b?replicas=6", "whole number from 1 to 5"),
        ("nats://host/b?replicas=0", "replicas"),
        ("nats://host/b?timeout=soon", "timeout"),
        ("nats://host/b?history=5", "history.*patience, replicas, timeout"),
    ],
)
def test_an_invalid_url_is_rejected_before_connecting(url, words):
    with pytest.raises(StateStoreError, match=words):
        holdfast.open_state_store(url)


def test_opening_does_not_connect_and_masks_secrets():
    store = holdfast.open_state_store(
        "nats://me:pass-w0rd@a:4222,b:4222/state?replicas=3&timeout=5&patience=60"
    )
    assert repr(store) == (
        "<NatsStateStore nats://me:***@a:4222,b:4222/state?replicas=3&timeout=5&patience=60>"
    )
    assert "t0ken" not in repr(holdfast.open_state_store("tls://t0ken@a/b"))
    asyncio.run(store.close())


GREETING = b"INFO " + json.dumps({"version": "2.10.0", "max_payload": 1024}).encode() + b"\r\n"


@async_test
async def test_no_password_is_sent_without_tls_if_tls_is_required():
    async with Impostor(GREETING) as server:
        error = await catch_first_error(f"tls://me:pass-w0rd@127.0.0.1:{server.port}/b")
        assert "does not require TLS" in str(error)
        assert server.heard == b""


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", GREETING])
@async_test
async def test_a_server_that_closes_or_is_not_nats_is_reported(greeting):
    async with Impostor(greeting) as server:
        error = await catch_first_error(f"nats://127.0.0.1:{server.port}/b")
        assert "the connection to nats://127.0.0.1" in str(error)
        assert not error.unknown


@async_test
async def test_a_silent_server_times_out():
    async def silent(reader, writer) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    error = await catch_first_error(f"nats://127.0.0.1:{port}/b?timeout=0.3")
    assert "within 0.3 seconds" in str(error)
    server.close()
    await server.wait_closed()


@async_test
async def test_tls_needs_a_trusted_certificate(own_server, bucket, tmp_path, monkeypatch):
    certificate(tmp_path)
    server = own_server(
        f'tls {{ cert_file: "{tmp_path}/cert.pem", key_file: "{tmp_path}/key.pem" }}\n'
        'authorization { user: me, password: "pass-w0rd" }'
    )
    url = server.url(bucket, user="me:pass-w0rd").replace("nats://", "tls://")
    error = await catch_first_error(url)
    assert "CERTIFICATE_VERIFY_FAILED" in str(error)
    assert "SSL_CERT_FILE" in str(error)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    for scheme in ("tls", "nats"):
        async with holdfast.open_state_store(url.replace("tls:", f"{scheme}:")) as store:
            await store.put("a", b"x" * MEGABYTE)
            assert (await store.get("a")).value == b"x" * MEGABYTE


@pytest.mark.parametrize("connects", [False, True])
@async_test
async def test_a_cancellation_that_the_driver_ignores_is_not_lost(
    nats_server, bucket, monkeypatch, connects
):
    """As ``asyncio.wait_for`` does before Python 3.12, if it ends at the same time."""
    url = nats_server.url(bucket) if connects else f"nats://127.0.0.1:{free_port()}/b"
    connecting, connect = asyncio.Event(), StrictClient.connect

    async def ignore_cancellation(client, *args, **options) -> None:
        with suppress(asyncio.CancelledError):
            connecting.set()
            await asyncio.Event().wait()
        await connect(client, *args, **options)

    monkeypatch.setattr(StrictClient, "connect", ignore_cancellation)
    async with holdfast.open_state_store(url) as store:
        task = asyncio.create_task(store.get("a"))
        await connecting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
