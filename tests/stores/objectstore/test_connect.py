"""Bucket URLs, credentials and connection errors."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from obstore.store import MemoryStore

from holdfast.errors import StateStoreError
from holdfast.stores import open_state_store
from holdfast.stores.objectstore import ObjectStateStore
from holdfast.stores.objectstore.errors import explain_error
from holdfast.stores.urls import StoreURL
from servers.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY
from stores.listing import list_keys
from support.async_tests import async_test


def test_stores_of_all_services_open_without_connecting(no_credentials):
    for url in (
        "s3://bucket",
        "s3://bucket/team/agents?region=eu-central-1",
        "gs://bucket/agents",
        "gs://bucket/agents?endpoint=http://127.0.0.1:4443&anonymous=true",
        "az://container/agents?account=holdfast",
        "az://container?account=holdfast&endpoint=http://127.0.0.1:10000&anonymous=yes",
    ):
        store = open_state_store(url)
        assert isinstance(store, ObjectStateStore)
        assert repr(store) == f"<ObjectStateStore {url}>"
        assert not store.atomic_put_many
        assert type(store._new_bucket()).__name__ in ("S3Store", "GCSStore", "AzureStore")
        asyncio.run(store.close())


def test_etags_are_what_the_service_accepts_as_a_condition():
    google = open_state_store("gs://bucket")
    azure = open_state_store("az://container?account=holdfast")
    answer = {"e_tag": '"0x8D4BCC2E4835CD0"', "version": "1794721107931132"}
    assert google._mode(google._etag(answer)) == {"version": "1794721107931132"}
    assert azure._mode(azure._etag(answer)) == {"e_tag": '"0x8D4BCC2E4835CD0"'}
    for none in (None, "", "*", '"a", "b"', 'W/"weak"'):
        with pytest.raises(StateStoreError, match="etag"):
            azure._etag({"e_tag": none, "version": None})


def test_secrets_are_masked():
    store = open_state_store(
        "s3://bucket/p?access_key_id=AKIDENT&secret_access_key=s3cr3t%2Fkey&session_token=t0k3n99"
    )
    assert repr(store).startswith("<ObjectStateStore s3://bucket/p?access_key_id=***")
    for secret in ("AKIDENT", "s3cr3t", "t0k3n99"):
        assert secret not in repr(store)
        assert secret not in repr(vars(store))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3:///prefix", "s3://NAME"),
        ("s3://key:word@bucket/p", "options"),
        ("s3://127.0.0.1:8333/bucket", "options"),
        ("s3://bucket/" + "p" * 201, "at most 200 bytes, got 201"),
        ("s3://bucket/" + "é" * 101, "got 202"),
        ("s3://bucket/a//b", "empty"),
        ("s3://bucket/a/../b", "empty"),
        ("s3://bucket/a%0Ab", "printable"),
        ("s3://bucket?endpoint=127.0.0.1:8333", "http://127.0.0.1:8333"),
        ("s3://bucket?endpoint=http://key:word@host", "http://127.0.0.1:8333"),
        ("s3://bucket?access_key_id=a", "both"),
        ("s3://bucket?secret_access_key=a", "both"),
        ("s3://bucket?session_token=a", "both"),
        ("s3://bucket?anonymous=true&access_key_id=a&secret_access_key=b", "anonymous"),
        ("s3://bucket?bucket=other", "unknown option 'bucket'"),
        ("s3://bucket?timeout=0", "timeout"),
        ("s3://bucket?patience=-1", "patience"),
        ("gs://bucket?region=here", "unknown option 'region'"),
        ("az://container?access_key_id=a", "unknown option 'access_key_id'"),
    ],
)
def test_an_invalid_url_is_rejected(url, message):
    with pytest.raises(StateStoreError, match=message) as caught:
        open_state_store(url)
    assert "word" not in str(caught.value).partition("password")[0]


def test_credentials_come_from_the_environment(s3_server, prefix, no_credentials):
    url = f"s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{s3_server.port}&region=us-east-1"
    no_credentials.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    no_credentials.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    no_credentials.setenv(
        "AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9"
    )  # the URL's endpoint takes precedence

    async def check():
        async with open_state_store(url) as store:
            await store.put("a", b"1")
            assert await list_keys(store) == ["a"]

    asyncio.run(check())


def test_credentials_in_the_url_are_not_mixed_with_the_environment(
    s3_server, prefix, no_credentials
):
    no_credentials.setenv("AWS_ACCESS_KEY_ID", "another")
    no_credentials.setenv("AWS_SECRET_ACCESS_KEY", "another")
    no_credentials.setenv("AWS_SESSION_TOKEN", "another")

    async def check():
        async with open_state_store(s3_server.url(prefix)) as store:
            await store.put("a", b"1")

    asyncio.run(check())


async def first_error(url, do=lambda store: store.put("a", b"1")):
    async with open_state_store(url) as store:
        with pytest.raises(StateStoreError) as caught:
            await do(store)
    assert SECRET_KEY not in str(caught.value)
    return caught.value


def test_a_missing_bucket_is_named_in_the_error(s3_server, prefix):
    url = s3_server.url(prefix).replace(BUCKET, "no-such-bucket")
    for do in (
        lambda store: store.get("a"),
        lambda store: store.put("a", b"1", if_absent=True),
        lambda store: store.delete("a"),
        list_keys,
    ):
        error = asyncio.run(first_error(url, do))
        assert "there is no bucket at s3://no-such-bucket" in str(error)
        assert not error.transient
        assert not error.unknown


@async_test
async def test_a_deleted_bucket_is_not_mistaken_for_an_absent_key(s3_server, prefix):
    async with open_state_store(s3_server.url(prefix)) as store:
        gone = s3_server.bucket("no-such-bucket")
        await store.get("a")
        (connection,) = store._connections.values()
        connection.client = gone
        for call in (
            store.get("a"),
            store.delete("a"),
            store.get_many(["a", "b"]),
            store.put("a", b"1"),
            store.put("a", b"1", if_absent=True),
        ):
            with pytest.raises(StateStoreError, match="there is no bucket"):
                await call


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"secret_access_key": "a wrong secret"}, "SignatureDoesNotMatch"),
        ({"access_key_id": "unknown-key"}, "InvalidAccessKeyId"),
    ],
)
def test_wrong_credentials_fail_at_once(s3_server, prefix, options, message):
    error = asyncio.run(first_error(s3_server.url(prefix, **options)))
    assert "denied access" in str(error)
    assert message in str(error)
    assert "AWS_ACCESS_KEY_ID" in str(error)
    assert "a wrong secret" not in str(error)
    assert "unknown-key" not in str(error)
    assert not error.transient


def test_anonymous_access_is_denied(s3_server):
    url = f"s3://{BUCKET}/x?endpoint=http://127.0.0.1:{s3_server.port}&anonymous=true"
    error = asyncio.run(first_error(url))
    assert "AccessDenied" in str(error)
    assert "that the bucket exists" in str(error)


def test_an_unreachable_server_fails_at_once(s3_server, prefix):
    begun = time.monotonic()
    error = asyncio.run(first_error(s3_server.url(prefix, port=9)))
    assert time.monotonic() - begun < 5
    assert "cannot be reached" in str(error)
    assert "endpoint" in str(error)
    assert error.transient
    assert not error.unknown


def test_a_server_that_does_not_respond_times_out(prefix, s3_server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = s3_server.url(prefix, port=silent.getsockname()[1], timeout=0.3)
        error = asyncio.run(first_error(url))
    assert error.transient
    assert "0.3 seconds" in str(error) or "failed" in str(error)


def test_an_incomplete_configuration_is_explained(no_credentials):
    no_credentials.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    error = asyncio.run(first_error("az://container"))
    assert "Account must be specified" in str(error)
    assert "Debug" not in str(error)


def test_errors_of_the_client_are_classified():
    def explain(text):
        return explain_error(Exception(text), "s3", "s3://bucket")

    busy = explain("Server returned non-2xx status code: 503 Service Unavailable: ")
    assert (busy.transient, busy.unknown) == (True, True)
    refused = explain("Server returned non-2xx status code: 400 Bad Request: <Code>X</Code>...")
    assert (refused.transient, refused.unknown) == (False, False)
    slow = explain("Server returned non-2xx status code: 429 Too Many Requests: ")
    assert (slow.transient, slow.unknown) == (True, False)
    no_credentials = explain(
        "Error performing PUT http://169.254.169.254/latest/api/token in 1s - kind: Connect"
    )
    assert "no credentials" in str(no_credentials)


def test_objects_of_other_programs_are_skipped_or_named(s3_server, prefix):
    bucket = s3_server.bucket()
    bucket.put(f"{prefix}/folder/readme.txt", b"a folder that no key has")
    bucket.put(f"{prefix}/%41", b"text")
    bucket.put(f"{prefix}/Ü", b"text")
    bucket.put(f"{prefix}/empty", b"")

    async def check():
        async with open_state_store(s3_server.url(prefix)) as store:
            await store.put("a", b"1")
            assert await list_keys(store) == ["%41", "a", "empty"]
            for key in ("%41", "empty"):
                for call in (
                    store.get(key),
                    store.put(key, b"1"),
                    store.put(key, b"1", if_absent=True),
                    store.put(key, b"1", if_match='"x"'),
                    store.delete(key),
                ):
                    with pytest.raises(StateStoreError, match="not written by Holdfast"):
                        await call
        assert bytes(bucket.get(f"{prefix}/%41").bytes()) == b"text"

    asyncio.run(check())


def test_a_store_works_without_a_prefix():
    memory = MemoryStore()

    async def check():
        async with ObjectStateStore(StoreURL("s3://bucket"), lambda: memory) as store:
            await store.put("a/b", b"1")
            assert await list_keys(store, "a/") == ["a/b"]
        assert [one["path"] for one in memory.list().collect()] == ["a.~/b"]

    asyncio.run(check())
