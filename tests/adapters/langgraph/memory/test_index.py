"""Semantic search: what is embedded, stored and found."""

from __future__ import annotations

import pytest
from langgraph.store.base import PutOp

from adapters.langgraph.memory.embedding import LetterCounts
from holdfast import IntegrityError, Session, UnsupportedValueError, open_state_store
from holdfast.adapters.langgraph import HoldfastStore
from holdfast.adapters.langgraph.memory import vectors
from support.async_tests import async_test

USER = ("users", "7")


@pytest.fixture
def embed():
    return LetterCounts()


@pytest.fixture
def indexed(embed):
    """A memory store that indexes two fields."""
    config = {"dims": 8, "embed": embed, "fields": ["text", "notes[*].text"]}
    with HoldfastStore(open_state_store("memory:"), index=config) as found:
        yield found


@pytest.fixture(params=["numpy", "python"])
def arithmetic(request, monkeypatch):
    """Runs a test with and without numpy."""
    if request.param == "numpy":
        pytest.importorskip("numpy")
    else:
        monkeypatch.setattr(vectors, "score_with_numpy", lambda: None)


@pytest.mark.usefixtures("arithmetic")
def test_the_best_vector_of_an_item_gives_its_score(indexed):
    indexed.put(USER, "one", {"text": "aaaa", "notes": [{"text": "b"}, {"text": "cc"}]})
    indexed.put(USER, "two", {"text": "cb"})
    indexed.put(USER, "zero", {"text": "xyz"})
    indexed.put(USER, "none", {"other": "c"})
    found = indexed.search(("users",), query="ccc")
    assert [each.key for each in found] == ["one", "two", "zero", "none"]
    assert [each.score for each in found[:3]] == pytest.approx([1, 0.5**0.5, 0])
    assert found[3].score is None
    assert [each.key for each in indexed.search(USER, query="ccc", limit=2, offset=1)] == [
        "two",
        "zero",
    ]
    assert [each.key for each in indexed.search(USER, query="c", filter={"text": "cb"})] == ["two"]


def test_only_new_texts_are_embedded(indexed, embed):
    indexed.put(USER, "one", {"text": "aa", "notes": [{"text": "b"}]})
    assert embed.embedded == ["aa", "b"]
    indexed.put(USER, "one", {"text": "aa", "notes": [{"text": "c"}, {"text": "b"}], "n": 1})
    assert embed.embedded == ["aa", "b", "c"]
    indexed.put(USER, "one", {"text": "aa"}, index=False)
    indexed.put(USER, "two", {"text": "aa", "title": "dd"}, index=["title"])
    indexed.delete(USER, "two")
    assert embed.embedded == ["aa", "b", "c", "dd"]
    assert [each.score for each in indexed.search(USER, query="aa")] == [None]


def test_equal_texts_of_a_batch_are_embedded_once(indexed, embed):
    indexed.batch([PutOp(USER, key, {"text": "aa"}) for key in "xyz"])
    assert embed.embedded == ["aa"]
    assert [each.score for each in indexed.search(USER, query="a")] == pytest.approx([1, 1, 1])


@async_test
async def test_an_async_embedding_function_is_awaited():
    config = {"dims": 8, "embed": LetterCounts().asynchronously}
    async with HoldfastStore(open_state_store("memory:"), index=config) as memory:
        await memory.aput(USER, "one", {"words": "aaa"})
        await memory.aput(USER, "two", {"words": "fff"})
        found = await memory.asearch(USER, query="f", limit=1)
        assert [each.key for each in found] == ["two"]


def test_a_query_without_an_index_lists_the_items(memory):
    memory.put(USER, "one", {"text": "aa"}, index=["text"])
    assert [(each.key, each.score) for each in memory.search(USER, query="aa")] == [("one", None)]


def test_vectors_are_bytes_beside_the_value(indexed):
    indexed.put(USER, "one", {"text": "ab"})

    @async_test
    async def check():
        session = await Session.open(
            indexed.state_store, agent_id="memory", session_id="users.7", must_exist=True
        )
        assert session.state == {"one": {"text": "ab"}}
        (part,) = session.snapshot().get(vectors.VECTORS, "one")
        assert (part["path"], len(part["vector"])) == ("text", 8 * 4)

    check()


def test_vectors_of_another_length_are_computed_again(indexed):
    indexed.put(USER, "one", {"text": "ab"})
    embed = LetterCounts()
    config = {"dims": 3, "embed": lambda texts: [each[:3] for each in embed(texts)]}
    other = HoldfastStore(indexed.state_store, index={**config, "fields": ["text"]})
    assert [each.score for each in other.search(USER, query="a")] == [None]
    other.put(USER, "one", {"text": "ab"})
    assert embed.embedded[-1] == "ab"
    assert [each.score for each in other.search(USER, query="ab")] == pytest.approx([1])


def test_a_wrong_embedding_is_refused_and_nothing_is_written():
    store = open_state_store("memory:")
    short = HoldfastStore(store, index={"dims": 9, "embed": LetterCounts()})
    with pytest.raises(ValueError, match="8 dimensions, but the index has dims=9"):
        short.put(USER, "one", {"text": "a"})
    few = HoldfastStore(store, index={"dims": 8, "embed": lambda texts: []})
    with pytest.raises(ValueError, match="0 vectors for 1 texts"):
        few.put(USER, "one", {"text": "a"})
    assert few.search(USER) == []


@pytest.mark.parametrize(
    ("space", "entry"),
    [
        ("langgraph/memory/items", {"created_at": "yesterday"}),
        ("langgraph/memory/items", 5),
        ("langgraph/memory/items", {"created_at": "2026-01-01T00:00:00"}),
        ("langgraph/memory/expiry", {"at": 5, "ttl": 1}),
        ("langgraph/memory/expiry", {"at": "2026-01-01T00:00:00+00:00", "ttl": float("nan")}),
        ("langgraph/memory/vectors", [{"text": b"x", "vector": b"123"}]),
        ("langgraph/memory/vectors", {}),
    ],
)
def test_damaged_entries_are_reported(indexed, space, entry):
    indexed.put(USER, "one", {"text": "ab"})

    @async_test
    async def damage():
        async with Session.open(
            indexed.state_store, agent_id="memory", session_id="users.7"
        ) as session:
            session.record("damaged", changes={"set": [(space, "one", entry)], "delete": []})

    damage()
    with pytest.raises(IntegrityError, match=f"'one' in namespace '{space}'"):
        indexed.search(USER, query="a")


def test_what_cannot_be_embedded_is_one_clear_error(memory):
    index = {"dims": 2, "embed": lambda texts: [[1.0, 2.0] for _ in texts]}
    whole = HoldfastStore(memory.state_store, index=index)
    with pytest.raises(UnsupportedValueError, match="'a' cannot be embedded.*index=False"):
        whole.put(USER, "a", {"data": b"x"})
    whole.put(USER, "a", {"data": b"x"}, index=False)
    assert whole.get(USER, "a").value == {"data": b"x"}


@pytest.mark.parametrize("vector", [[1.0], [float("nan"), 1.0], [1e300, 1.0]])
def test_an_invalid_vector_is_refused(memory, vector):
    index = {"dims": 2, "embed": lambda texts: [vector for _ in texts]}
    indexed = HoldfastStore(memory.state_store, index=index)
    with pytest.raises(ValueError, match="an embedding has"):
        indexed.put(USER, "a", {"text": "x"})
    memory.put(USER, "a", {"text": "x"})
    with pytest.raises(ValueError, match="an embedding has"):
        indexed.search(USER, query="x")
