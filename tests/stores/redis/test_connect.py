"""Redis URLs, permissions and connections."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
import traceback
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import StateStoreError
from holdfast.stores.entries import Entry, Put
from holdfast.stores.registry import open_state_store
from holdfast.testing.state_store_suite import collect_keys, read_all
from servers.cutting_proxy import CuttingProxy
from servers.process import free_port, wait_until


class TestOpening:
    @pytest.mark.parametrize(
        ("rest", "problem"),
        [
            ("/0?namespce=x", "namespce"),
            ("/0?namespace=%7Bx%7D", "braces"),
            ("/0?pool=0", "pool"),
            ("/0?patience=much", "patience"),
            ("/0?decode_responses=true", "decode_responses"),
            ("/0?ssl_cert_reqs=none", "ssl_cert_reqs"),
            ("/0?protocol=new", "protocol"),
            ("/0?protocol=9", "2 or 3"),
            ("/0?health_check_interval=x", "health_check_interval"),
            ("/cache", "number"),
        ],
    )
    def test_an_invalid_url_is_rejected(self, rest, problem):
        with pytest.raises(StateStoreError, match=problem) as caught:
            open_state_store(f"redis://me:hush-hush@server{rest}")
        assert "hush" not in str(caught.value)

    @pytest.mark.parametrize(
        ("change", "hint"),
        [
            (lambda url, port: url.replace("s3cret", "wrong"), "password"),
            (lambda url, port: url.replace(":s3cret-w0rd@", ""), "password"),
            (lambda url, port: url.replace("//:", "//other-user:"), "password"),
            (lambda url, port: url.replace("/0?", "/99?"), "out of range"),
            (lambda url, port: url.replace(f":{port}/", f":{free_port()}/"), "cannot be reached"),
        ],
    )
    def test_an_unusable_server_fails_at_once(self, redis_server, namespace, change, hint):
        async def use():
            async with open_state_store(url) as store:
                for call in (lambda: store.get("a"), lambda: store.put("a", b"1")):
                    with pytest.raises(StateStoreError, match=hint) as caught:
                        await call()
                    assert not caught.value.unknown
                    assert "w0rd" not in str(caught.value)
                    assert "w0rd" not in repr(caught.value.__cause__)
                    assert "w0rd" not in repr(store)

        url = change(redis_server.url(namespace=namespace), redis_server.port)
        start = time.monotonic()
        asyncio.run(use())
        assert time.monotonic() - start < 3

    def test_no_frame_of_an_error_shows_the_password(self, redis_server, namespace):
        url = redis_server.url(namespace=namespace).replace("s3cret", "wrong")
        store = open_state_store(url)

        async def use():
            with pytest.raises(StateStoreError, match="password") as caught:
                await store.get("a")
            await store.close()
            return caught.value

        error = asyncio.run(use())
        formatted = traceback.TracebackException.from_exception(error, capture_locals=True)
        assert "w0rd" not in "".join(formatted.format())

    def test_missing_permissions_are_listed(self, redis_server, namespace):
        with redis_server.client() as client:
            client.acl_setuser(namespace, enabled=True, passwords=["+other"], commands=["+ping"])
        url = redis_server.url(namespace=namespace).replace(":s3cret-w0rd@", f"{namespace}:other@")

        async def use():
            async with open_state_store(url) as store:
                with pytest.raises(StateStoreError, match="EVALSHA"):
                    await store.put("a", b"1")
                with redis_server.client() as client:
                    client.acl_setuser(
                        namespace,
                        keys=["{holdfast:*"],
                        commands=[
                            *("+evalsha", "+script|load", "+exists", "+set"),
                            *("+hget", "+hmget", "+hset", "+del"),
                            *("+zadd", "+zcard", "+zrem", "+zrangebylex", "+multi", "+exec"),
                        ],
                    )
                await store.put_many([Put("a", b"1"), Put("b", b"1")])
                assert await read_all(store) == {"a": b"1", "b": b"1"}
                assert await store.delete("a")

        asyncio.run(use())

    def test_no_connection_outlives_its_event_loop(self, redis_server, namespace):
        store = open_state_store(redis_server.url(namespace=namespace, client_name=namespace))

        def sessions():
            with redis_server.client() as client:
                return [one for one in client.client_list() if one["name"] == namespace]

        for _ in range(2):
            asyncio.run(store.put("a", b"1"))
            wait_until(lambda: not sessions(), "a session is left", seconds=5)
        asyncio.run(store.close())

    def test_more_calls_than_connections_wait_for_each_other(self, redis_server, namespace):
        async def use():
            url = redis_server.url(namespace=namespace, pool=1)
            async with open_state_store(url) as store:
                await asyncio.gather(*(store.put(f"{n}", b"1") for n in range(50)))
                assert len(await collect_keys(store.list())) == 50

        asyncio.run(use())

    def test_tls_is_supported_and_the_certificate_checked(self, redis_server, namespace, tmp_path):
        certificate, key = create_certificate(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)

        async def use():
            with CuttingProxy(redis_server.port, tls=context) as tls:
                url = redis_server.url(namespace=namespace).replace("redis:", "rediss:")
                url = url.replace(f":{redis_server.port}/", f":{tls.port}/")
                async with open_state_store(f"{url}&ssl_ca_certs={certificate}") as store:
                    etag = await store.put("a", b"1")
                    assert await store.get("a") == Entry(b"1", etag)
                async with open_state_store(url) as store:
                    with pytest.raises(StateStoreError, match="certificate"):
                        await store.get("a")

        asyncio.run(use())


def create_certificate(folder):
    """Create a self-signed certificate for this machine, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "holdfast test")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(encoding))
    files[1].write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
