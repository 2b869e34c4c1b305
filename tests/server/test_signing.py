"""A server that imports only documents signed by a trusted key."""

from __future__ import annotations

import gzip
import json

import pytest

import holdfast
from holdfast.documents.signing import sign_document
from holdfast.server import create_app
from support.async_tests import async_test, run_async
from support.rest_api import connect_app, dump_store, expect_ok, expect_problem, fill_store
from support.signing_keys import KEY, OTHER, TRUSTED

IMPORT = "/agents/snapshot/restore"


@pytest.fixture(scope="module")
def document():
    """An unsigned document."""

    async def export():
        async with holdfast.open_state_store("memory:") as store:
            await fill_store(store)
            return await holdfast.SnapshotManager(store).export_session("research-bot", "ses_1")

    return run_async(export())


@pytest.fixture(scope="module")
def trusting_app():
    """A store, and an app on it that trusts one key."""
    store = holdfast.open_state_store("memory:")
    return store, create_app(store, trusted=TRUSTED)


def encode(document):
    return b"".join(document.chunks())


@async_test
async def test_signed_document_is_imported_and_the_signer_logged(trusting_app, document):
    store, app = trusting_app
    api = connect_app(app)
    signed = encode(sign_document(document, KEY))
    for data in (signed, gzip.compress(signed)):
        tried = expect_ok(await api.post(IMPORT, content=data, params={"dry_run": True}))
        assert tried["signed_by"] == [KEY.key_id]
    done = expect_ok(await api.post(IMPORT, content=signed, params={"session_id": "mine"}))
    assert (done["created"], done["signed_by"]) == (True, [KEY.key_id])
    session = await holdfast.Session.open(store, agent_id="research-bot", session_id="mine")
    assert session.events[-1].data["signed_by"] == [KEY.key_id]


@async_test
async def test_document_without_a_trusted_signature_is_rejected(trusting_app, document):
    store, app = trusting_app
    api, before = connect_app(app), await dump_store(store)
    tree = json.loads(encode(sign_document(document, KEY)))
    twice = encode(sign_document(document, KEY)).replace(b"{", b'{"agent_id": "admin",', 1)
    for sent, words in (
        (encode(document), "not signed"),
        (encode(sign_document(document, OTHER)), OTHER.key_id),
        (json.dumps({**tree, "tags": {"x": "y"}}), "does not match"),
        (json.dumps({**tree, "signatures": [{"algorithm": "none"}]}), "malformed"),
        (b"[]", "not signed"),
    ):
        for params in ({}, {"allow_modified": True}):
            answer = await api.post(IMPORT, content=sent, params=params)
            tree = expect_problem(answer, 422, words, kind="not-trusted")
            assert tree["title"] == "Not signed by a trusted key"
            assert "allow_modified" not in tree["hint"]
    expect_problem(await api.post(IMPORT, content=twice), 400, "twice", kind="bad-request")
    assert await dump_store(store) == before


def test_create_app_rejects_invalid_trusted_keys(store):
    with pytest.raises(ValueError, match="no trusted keys"):
        create_app(store, trusted=[])
    with pytest.raises(TypeError, match="PublicKey"):
        create_app(store, trusted="release.pub")
