"""URLs of stores: each opens a store, or is refused without its password on the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from holdfast import StateStoreError, open_state_store
from holdfast.stores.urls import MAX_LENGTH, StoreURL
from trials.fuzz.junk import WORDS
from trials.fuzz.mutation import changed_text
from trials.fuzz.trying import Target, Wrong

SECRET = "Xq7tBxZ9hunter"
REAL = (
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


class URLs(Target):
    """`open_state_store`, which connects to nothing."""

    name = "urls"
    refusals = (StateStoreError,)
    longest_message = 3 * MAX_LENGTH
    """A URL is repeated, and drivers repeat parts of it once more."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._runner = asyncio.Runner()

    @property
    def corpus(self) -> Sequence[bytes]:
        """URLs of every backend."""
        return [url.encode() for url in REAL]

    def mutated(self, rng: Random) -> bytes:
        """A URL with a few changes."""
        text = rng.choice(REAL)
        for _ in range(rng.randint(1, 3)):
            text = changed_text(rng, text)
        return text.encode(errors="surrogatepass")

    def made_up(self) -> st.SearchStrategy[bytes]:
        """Put together from pieces."""
        schemes = st.sampled_from(sorted({url.partition(":")[0] for url in REAL}))
        joints = st.sampled_from(["", "/", "//", ":", "@", "?", "&", "=", "#", "%", ",", "[", "]"])
        pieces = st.lists(st.tuples(WORDS, joints).map("".join), max_size=6)
        return st.builds(
            lambda scheme, more: f"{scheme}:{''.join(more)}".encode(errors="surrogatepass"),
            schemes,
            pieces,
        )

    def attempt(self, data: bytes) -> None:
        """Open and close it."""
        url = data.decode(errors="surrogatepass")
        hidden = f":{SECRET}@" in url.partition("://")[2].partition("/")[0]
        try:
            store = open_state_store(url)
        except StateStoreError as error:
            if hidden and SECRET in str(error):
                raise Wrong(f"the password is told: {error}") from error
            raise
        try:
            parsed = StoreURL(url)
            if hidden and SECRET in f"{store!r} {parsed} {parsed.mask(url)}":
                raise Wrong(f"the password is shown: {store!r}")
            again = StoreURL(parsed.text())
            if (again.host, again.port, again.path, again.options) != (
                *(parsed.host, parsed.port, parsed.path, parsed.options),
            ):
                raise Wrong(f"written again it is another: {again!r} and not {parsed!r}")
        finally:
            self._runner.run(store.close())

    def close(self) -> None:
        """End its loop."""
        self._runner.close()
