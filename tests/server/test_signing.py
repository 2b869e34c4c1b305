"""A server that imports what is signed by keys that it trusts, and nothing else."""

from __future__ import annotations

import gzip
import json

import pytest

import holdfast
from holdfast.documents.signing import sign_document
from holdfast.server import create_app
from support.async_tests import async_test, run_async
from support.rest_api import client_of, entries, filled, good, problem
from support.signing_keys import KEY, OTHER, TRUSTED

IMPORT = "/agents/snapshot/restore"


@pytest.fixture(scope="module")
def document():
    """A document that nobody has signed."""

    async def exported():
        async with holdfast.open_state_store("memory:") as store:
            await filled(store)
            return await holdfast.SnapshotManager(store).export_session("research-bot", "ses_1")

    return run_async(exported())


@pytest.fixture(scope="module")
def trusting():
    """A store, and somebody who asks an app on it that trusts one key."""
    store = holdfast.open_state_store("memory:")
    return store, create_app(store, trusted=TRUSTED)


def body(found):
    return b"".join(found.chunks())


@async_test
async def test_a_signed_document_is_imported_and_the_log_says_by_whom(trusting, document):
    store, app = trusting
    api = client_of(app)
    signed = body(sign_document(document, KEY))
    for data in (signed, gzip.compress(signed)):
        tried = good(await api.post(IMPORT, content=data, params={"dry_run": True}))
        assert tried["signed_by"] == [KEY.key_id]
    done_ = good(await api.post(IMPORT, content=signed, params={"session_id": "mine"}))
    assert (done_["created"], done_["signed_by"]) == (True, [KEY.key_id])
    session = await holdfast.Session.open(store, agent_id="research-bot", session_id="mine")
    assert session.events[-1].data["signed_by"] == [KEY.key_id]


@async_test
async def test_what_no_trusted_key_signed_is_refused_and_nothing_is_written(trusting, document):
    store, app = trusting
    api, before = client_of(app), await entries(store)
    tree = json.loads(body(sign_document(document, KEY)))
    twice = body(sign_document(document, KEY)).replace(b"{", b'{"agent_id": "admin",', 1)
    for sent, words in (
        (body(document), "not signed"),
        (body(sign_document(document, OTHER)), OTHER.key_id),
        (json.dumps({**tree, "tags": {"x": "y"}}), "does not match"),
        (json.dumps({**tree, "signatures": [{"algorithm": "none"}]}), "malformed"),
        (b"[]", "not signed"),
    ):
        for params in ({}, {"allow_modified": True}):
            answer = await api.post(IMPORT, content=sent, params=params)
            told = problem(answer, 422, words, kind="not-trusted")
            assert told["title"] == "It is not signed by a trusted key"
            assert "allow_modified" not in told["hint"]
    problem(await api.post(IMPORT, content=twice), 400, "twice", kind="bad-request")
    assert await entries(store) == before


def test_an_app_that_trusts_nobody_is_a_mistake(store):
    with pytest.raises(ValueError, match="no trusted keys"):
        create_app(store, trusted=[])
    with pytest.raises(TypeError, match="PublicKey"):
        create_app(store, trusted="release.pub")
