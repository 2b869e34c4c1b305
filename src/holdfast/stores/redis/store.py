"""Redis: a hash an entry, and one sorted set of all keys, which keeps them in order.

All members of the set have the same score, so that Redis orders them by their bytes, which in UTF-8
is the order of code points; a page is read from it by its bounds. Writes are two scripts, which
Redis runs one at a time and whole: conditions first, then all changes, then a mark that the write
is done. A retry that finds the mark of its write knows that an earlier attempt was done, whatever
others wrote after it. All names of a store have the same hash tag, so that they live in one slot.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from holdfast.errors import StateStoreError, short_repr
from holdfast.extras import require_extra
from holdfast.stores.backend import etag_mismatch_error, key_exists_error, new_etag
from holdfast.stores.base import Etags
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.remote import PATIENCE, TIMEOUT, RemoteStateStore
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

with require_extra("redis"):
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.connection import parse_url
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError

NAMESPACE = "holdfast"
POOL = 10
YEAR = 365 * 86_400
STORE_OPTIONS = ("namespace", "patience", "pool", "timeout")
DRIVER_OPTIONS = (
    *("client_name", "db", "health_check_interval", "protocol"),
    *("socket_connect_timeout", "socket_keepalive", "socket_timeout"),
)
TLS_OPTIONS = (
    *("ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname"),
    *("ssl_ciphers", "ssl_keyfile", "ssl_min_version", "ssl_password"),
)

# KEYS: the set, the mark, the entries of conditions, then those to write. ARGV: seconds to keep the
# mark, the number of conditions and their etags, then for each entry to write: key, new etag,
# condition, etag expected, value. Answers 0 when all is written, now or by an earlier attempt, else
# which entry does not hold its condition, counted through both, and its etag.
PUT_SCRIPT = """
if redis.call('EXISTS', KEYS[2]) == 1 then return {0, false} end
redis.call('ZCARD', KEYS[1])
local needed = tonumber(ARGV[2])
for i = 1, needed do
  local found = redis.call('HGET', KEYS[i + 2], 'e')
  if found ~= ARGV[i + 2] then return {i, found} end
end
for i = 1, #KEYS - 2 - needed do
  local condition, expected = unpack(ARGV, needed + i * 5, needed + i * 5 + 1)
  local found = redis.call('HGET', KEYS[needed + i + 2], 'e')
  if condition == 'absent' and found then return {needed + i, found} end
  if condition == 'match' and found ~= expected then return {needed + i, found} end
end
for i = 1, #KEYS - 2 - needed do
  local at = needed + i * 5
  redis.call('HSET', KEYS[needed + i + 2], 'v', ARGV[at + 2], 'e', ARGV[at - 1])
  redis.call('ZADD', KEYS[1], 0, ARGV[at - 2])
end
redis.call('SET', KEYS[2], '', 'EX', ARGV[1])
return {0, false}
"""
# KEYS: the set, the mark, the entry. ARGV: seconds to keep the mark, key, condition, etag expected.
# Answers whether it is removed, now or by an earlier attempt, else its etag.
DELETE_SCRIPT = """
if redis.call('EXISTS', KEYS[2]) == 1 then return {1, false} end
local found = redis.call('HGET', KEYS[3], 'e')
if not found then return {0, false} end
if ARGV[3] == 'match' and found ~= ARGV[4] then return {0, found} end
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('DEL', KEYS[3])
redis.call('SET', KEYS[2], '', 'EX', ARGV[1])
return {1, false}
"""


@dataclass(frozen=True, slots=True)
class RedisClient:
    """redis-py's client of one event loop."""

    redis: Redis
    life: AsyncGenerator[None]

    async def run(self, script: str, keys: Sequence[bytes], values: Sequence[bytes]) -> Any:
        """What a script answers, which is sent once and then named by its digest."""
        return await self.redis.register_script(script)(keys, values)


class RedisStateStore(RemoteStateStore[RedisClient]):
    """Keeps entries in a Redis server, version 6 or later, or what speaks as one.

    ``put_many`` and ``get_many`` are one moment. ``durable`` is what Redis makes of it: a server
    with ``appendonly yes`` and ``appendfsync always`` loses nothing that was acknowledged, with
    ``everysec`` up to a second at a crash, and with neither all since its last snapshot. It must
    not evict keys (``maxmemory-policy noeviction``). A value has at most 512 MB. A node of a
    cluster is refused: all keys live in one slot, and this client does not look for its node.
    """

    atomic_put_many = True
    conditional_put_many = True
    atomic_get_many = True
    failures = (RedisError,)

    def __init__(
        self,
        url: StoreURL,
        target: str,
        *,
        namespace: str = NAMESPACE,
        pool: int = POOL,
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(url, timeout=timeout, patience=patience)
        self._target = target
        self._size = pool
        tag = b"{holdfast:%b}:" % validate_namespace(namespace)
        self._keys = tag + b"keys"
        self._entry = tag + b"e:"
        self._mark = tag + b"d:"
        # Longer than the attempts of a write last, and the way of one that was slow.
        self._mark_seconds = min(math.ceil(2 * (patience + timeout) + 60), YEAR)

    async def _connect(self) -> RedisClient:
        pool = BlockingConnectionPool.from_url(
            self._target,
            max_connections=self._size,
            # Sooner than the attempt itself, of which one would not know whether it wrote.
            timeout=self._timeout * 0.9,
            socket_timeout=None,
            socket_connect_timeout=self._timeout,
            decode_responses=False,
            # The third has nothing for us, and in it the driver does not look whether the server
            # has ended a connection that was idle.
            protocol=2,
            # Tried again by RemoteStateStore, which knows when a write is done already.
            retry=Retry(NoBackoff(), 0),
        )
        redis = Redis.from_pool(pool)
        client = RedisClient(redis, close_with_loop(redis))
        await anext(client.life)
        try:
            await redis.ping()
        except BaseException:
            await self._disconnect(client)
            raise
        return client

    async def _disconnect(self, client: RedisClient) -> None:
        await client.life.aclose()

    async def _get(self, key: str) -> Entry | None:
        return (await self._get_many([key])).get(key)

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        async def read(client: RedisClient) -> Sequence[Sequence[Any]]:
            # A transaction, as a batch may be written between two of the reads.
            async with client.redis.pipeline(transaction=len(keys) > 1) as pipeline:
                for key in keys:
                    pipeline.execute_command("HMGET", self._entry + key.encode(), "v", "e")
                found: Sequence[Sequence[Any]] = await pipeline.execute()
                return found

        found = await self._run(lambda client, _unsure: read(client))
        return {
            key: Entry(value, etag.decode())
            for key, (value, etag) in zip(keys, found, strict=True)
            if etag is not None
        }

    async def _page(self, span: KeyRange, count: int) -> Sequence[str]:
        low = (b"(" if span.exclusive else b"[") + span.low.encode()
        high = b"+" if span.high is None else b"(" + span.high.encode()
        found: Sequence[Any] = await self._run(
            lambda client, _unsure: client.redis.zrangebylex(self._keys, low, high, 0, count)
        )
        return [key.decode() for key in found]

    async def _put(self, put: Put) -> str:
        return (await self._put_many([put]))[0]

    async def _put_many(self, puts: Sequence[Put], conditions: Sequence[Condition] = ()) -> Etags:
        etags = [new_etag() for _ in puts]
        members = [put.key.encode() for put in puts]
        needed = [each.key.encode() for each in conditions]
        expected = [encode_condition(each.etag)[1] for each in conditions]
        values = chain.from_iterable(
            (
                member,
                etag.encode(),
                *encode_condition(put.if_match, absent=put.if_absent),
                put.value,
            )
            for put, member, etag in zip(puts, members, etags, strict=True)
        )
        which, found = await self._write(
            PUT_SCRIPT, [*needed, *members], [b"%d" % len(needed), *expected, *values]
        )
        if 0 < which <= len(needed):
            failed = conditions[which - 1]
            raise etag_mismatch_error(failed.key, failed.etag, found and found.decode())
        if which:
            put = puts[which - len(needed) - 1]
            if put.if_match is None:
                raise key_exists_error(put.key)
            raise etag_mismatch_error(put.key, put.if_match, found and found.decode())
        return etags

    async def _delete(self, key: str, if_match: str | None) -> bool:
        member = key.encode()
        removed, found = await self._write(
            DELETE_SCRIPT, [member], [member, *encode_condition(if_match)]
        )
        if not removed and if_match is not None:
            raise etag_mismatch_error(key, if_match, found and found.decode())
        return bool(removed)

    async def _write(self, script: str, members: Sequence[bytes], values: Iterable[bytes]) -> Any:
        """What a script answers that writes, with a mark that is the same on all attempts."""
        mark = self._mark + secrets.token_hex(16).encode()
        keys = [self._keys, mark, *(self._entry + member for member in members)]
        arguments = [b"%d" % self._mark_seconds, *values]
        return await self._run(
            lambda client, _unsure: client.run(script, keys, arguments), writes=True
        )

    def _explained(self, error: Exception) -> StateStoreError:
        said = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        kind = next(kind for kind in ERROR_KINDS if re.search(kind.pattern, said))
        return StateStoreError(
            f"{self.place} {kind.meaning}: {said}" + (f". {kind.hint}" if kind.hint else ""),
            transient=kind.transient,
            unknown=kind.unknown,
        )


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """What an error means. Its text is what tells: a script's error has no class of its own."""

    pattern: str
    meaning: str
    hint: str
    transient: bool = False
    unknown: bool = False


# The first that is found in what the driver says.
ERROR_KINDS = (
    ErrorKind(
        r"^Authentication|NOAUTH|WRONGPASS",
        "refuses to serve us",
        "See the user name and the password of the URL",
    ),
    ErrorKind(
        r"^NoPermission|NOPERM",
        "refuses to serve us",
        "Allow the user its keys ({holdfast:*) and PING, EVALSHA, SCRIPT LOAD, EXISTS, HGET, "
        "HMGET, HSET, SET, DEL, ZADD, ZCARD, ZREM, ZRANGEBYLEX, MULTI and EXEC",
    ),
    ErrorKind(r"^OutOfMemory|\bOOM\b", "has no memory left", "Raise its maxmemory, or make room"),
    ErrorKind(r"MISCONF", "cannot keep its data", "Its disk may be full: see its log"),
    ErrorKind(
        r"WRONGTYPE",
        "holds something else under our names",
        "Choose another with the option namespace of the URL",
    ),
    ErrorKind(
        r"^Moved|^Ask|^Cluster|CROSSSLOT",
        "is a node of a cluster",
        "Name a server that is none, or the one that holds all slots",
    ),
    ErrorKind(
        r"^ReadOnly|READONLY", "takes no writes", "It is a replica: name its master", transient=True
    ),
    ErrorKind(
        r"^BusyLoading|LOADING|MASTERDOWN|^TryAgain|NOREPLICAS|\bBUSY\b",
        "cannot serve us now",
        "",
        transient=True,
    ),
    ErrorKind(
        r"No connection available|max number of clients",
        "has no connection free for us",
        "Allow more with the option pool of the URL, or with maxclients of the server",
        transient=True,
    ),
    ErrorKind(
        r"connecting to|SSL",
        "cannot be reached",
        "See whether the server runs and listens there, and whether it wants rediss:// for TLS",
        transient=True,
    ),
    ErrorKind(r"^(Connection|Timeout)Error", "was lost", "", transient=True, unknown=True),
    ErrorKind(r"", "cannot do it", ""),
)


async def close_with_loop(redis: Redis) -> AsyncGenerator[None]:
    """Hold a client open.

    ``asyncio.run()`` ends generators that are still open when its work is done, and so this one,
    and with it the connections of a store that goes on in another event loop or is forgotten.
    """
    try:
        yield
    finally:
        await redis.aclose()


def encode_condition(if_match: str | None, *, absent: bool = False) -> tuple[bytes, bytes]:
    """A condition for a script: its kind, and the etag expected."""
    if if_match is not None:
        # Any text may be asked for; what no store gave matches nothing.
        return b"match", if_match.encode(errors="surrogatepass")
    return (b"absent" if absent else b""), b""


def validate_namespace(namespace: str) -> bytes:
    """A namespace for the names of a store: without braces, which would end their hash tag."""
    if not re.fullmatch(r"[^\s{}]{1,200}", namespace):
        raise StateStoreError(
            "the option namespace of the redis URL has 1 to 200 characters, without spaces or "
            f"braces, not {short_repr(namespace)}"
        )
    return namespace.encode()


def open_url(url: StoreURL) -> RedisStateStore:
    """``redis://user:password@host:port/number``, or ``rediss://`` for TLS."""
    timeout = url.take_number("timeout", TIMEOUT, least=0.01)
    patience = url.take_number("patience", PATIENCE)
    pool = url.take_count("pool", POOL, least=1)
    namespace = url.take("namespace", NAMESPACE) or NAMESPACE
    known = (*DRIVER_OPTIONS, *(TLS_OPTIONS if url.scheme == "rediss" else ()))
    passed = {name: url.options.pop(name) for name in known if name in url.options}
    url.reject_unknown_options((*STORE_OPTIONS, *known))
    url.options.update(passed)
    if not re.fullmatch(r"/?[0-9]*", url.path):
        raise StateStoreError(
            f"the path of the URL {url} is the number of a database of Redis, as in /0; to keep "
            "stores apart, use the option namespace"
        )
    protocol = url.options.get("protocol", "2")
    if protocol not in {"2", "3"}:
        raise StateStoreError(
            f"the option protocol of the redis URL is 2 or 3, not {short_repr(protocol)}"
        )
    target = url.text()
    try:
        parse_url(target)
    except ValueError as error:
        raise StateStoreError(f"the URL {url} cannot be used: {url.mask(str(error))}") from None
    return RedisStateStore(
        url, target, namespace=namespace, pool=pool, timeout=timeout, patience=patience
    )
