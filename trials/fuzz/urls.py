"""Store URLs: each opens a store, or is refused without its password in the message."""

from __future__ import annotations

import asyncio

from hypothesis import strategies as st

from holdfast import StateStoreError, open_state_store
from holdfast.stores.urls import MAX_LENGTH, StoreURL
from trials.fuzz.strategies import WORDS, mutated_texts
from trials.fuzz.target import Target

SECRET = "Xq7tBxZ9hunter"


class URLs(Target):
    """`open_state_store`, which does not connect yet."""

    refusals = (StateStoreError,)
    longest_message = 3 * MAX_LENGTH  # drivers repeat parts of a URL
    valid = (
        "memory:",
        "sqlite:///state.db",
        "sqlite:////var/lib/state.db?read_only=true",
        "file:///var/lib/agents",
        "file:in%20here?prefix=team/",
        f"postgresql://ada:{SECRET}@db.example:5432/agents?sslmode=require",
        f"postgresql://ada:{SECRET}@one:1,two:2/agents?connect_timeout=3",
        f"redis://:{SECRET}@cache.example:6379/0?retry=3",
        f"rediss://ada:{SECRET}@[::1]:6380/1",
        "s3://bucket/prefix?region=eu-central-1",
        f"s3://bucket/prefix?secret_access_key={SECRET}&access_key_id=AK",
        "gs://bucket/a/b",
        "az://container/a?account=x",
        f"nats://{SECRET}@127.0.0.1:4222/bucket",
        f"nats://ada:{SECRET}@one:4222,two:4222/bucket?replicas=3",
        "dapr://statestore?namespace=research",
        "memory:?read_only=true&compress=zstd",
    )
    inputs = mutated_texts(valid) | st.builds(
        "{}:{}".format,
        st.sampled_from(sorted({url.partition(":")[0] for url in valid})),
        st.lists(WORDS | st.sampled_from("/:@?&=#%,[]") | st.just("//"), max_size=9).map("".join),
    )

    def check(self, data: str) -> None:
        """Open and close a store."""
        hidden = f":{SECRET}@" in data.partition("://")[2].partition("/")[0]
        try:
            store = open_state_store(data)
        except StateStoreError as error:
            assert not (hidden and SECRET in str(error)), "the message has the password"
            raise
        try:
            url = StoreURL(data)
            shown = f"{store!r} {url} {url.mask(data)}"
            assert not (hidden and SECRET in shown), "the representation has the password"
            again = StoreURL(url.text())
            for name in ("host", "port", "path", "options"):
                assert getattr(again, name) == getattr(url, name), f"{name} changed: {again!r}"
        finally:
            asyncio.run(store.close())
