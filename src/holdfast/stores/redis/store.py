"""Redis: one hash per entry, and one sorted set that keeps all keys in order.

All members of the set have the same score, so Redis sorts them by bytes, which in UTF-8 is code
point order; a page is read by its bounds. Writes are two scripts, which Redis runs atomically: they
check the conditions, apply the changes, and store the token of the write. A retry that finds its
token knows that an earlier attempt succeeded, whatever other writers did since. All names of a
store have the same hash tag, so they are in one slot.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from itertools import chain, islice
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, NoScriptError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from holdfast.errors import StateStoreError, short_repr
from holdfast.stores.backend import etag_mismatch_error
from holdfast.stores.base import Etags
from holdfast.stores.batch_write import BatchWrite, new_token
from holdfast.stores.call_queue import CallQueue, Take
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.notification import encode_notification, find_common_prefix
from holdfast.stores.redis.errors import ConnectError, PoolTimeoutError, explain_error
from holdfast.stores.redis.listener import RedisListener, find_topic
from holdfast.stores.remote import PATIENCE, TIMEOUT, RemoteStateStore
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

NAMESPACE = "holdfast"
POOL = 10
YEAR = 365 * 86_400
STORE_OPTIONS = ("namespace", "notify", "patience", "pool", "timeout")
DRIVER_OPTIONS = (
    *("client_name", "db", "health_check_interval", "protocol"),
    *("socket_connect_timeout", "socket_keepalive", "socket_timeout"),
)
TLS_OPTIONS = (
    *("ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname"),
    *("ssl_ciphers", "ssl_keyfile", "ssl_min_version", "ssl_password"),
)


@dataclass(frozen=True, slots=True)
class Script:
    """A script, which is sent once and then named by its digest."""

    text: str

    @property
    def digest(self) -> str:
        """What Redis calls the script."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()


# A user who may not publish can still write, so these calls may fail.
#
# KEYS: the set, the token, the entries of the conditions, the entries to write. ARGV: seconds to
# keep the token, the number of conditions and their etags, then for each entry to write: key, new
# etag, condition, expected etag, value; then a channel, empty for none, and the notification.
# Returns 0 if everything is written, now or by an earlier attempt; otherwise the number of the
# entry whose condition does not hold, and its etag.
PUT_SCRIPT = Script("""
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
if ARGV[#ARGV - 1] ~= '' then redis.pcall('PUBLISH', ARGV[#ARGV - 1], ARGV[#ARGV]) end
return {0, false}
""")
# KEYS: the set, the token, the entry. ARGV: seconds to keep the token, key, condition, expected
# etag, channel, notification. Returns whether the entry is deleted, now or by an earlier attempt;
# if not, its etag.
DELETE_SCRIPT = Script("""
if redis.call('EXISTS', KEYS[2]) == 1 then return {1, false} end
local found = redis.call('HGET', KEYS[3], 'e')
if not found then return {0, false} end
if ARGV[3] == 'match' and found ~= ARGV[4] then return {0, found} end
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('DEL', KEYS[3])
redis.call('SET', KEYS[2], '', 'EX', ARGV[1])
if ARGV[5] ~= '' then redis.pcall('PUBLISH', ARGV[5], ARGV[6]) end
return {1, false}
""")


class ConnectionPool(BlockingConnectionPool):
    """redis-py's pool, whose errors tell whether anything was sent."""

    async def get_connection(self, *args: Any, **options: Any) -> AbstractConnection:
        """Return a connection that is ready to use."""
        try:
            connection: AbstractConnection = await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
        except RedisConnectionError as error:
            if isinstance(error.__cause__, TimeoutError):
                raise PoolTimeoutError(*error.args) from error
            raise
        return connection

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        """Connect, and check that the connection is alive."""
        try:
            await super().ensure_connection(connection)
        except (AuthenticationError, BusyLoadingError):
            raise
        except (RedisConnectionError, RedisTimeoutError) as error:
            raise ConnectError(*error.args) from error


class RedisClient:
    """redis-py's client of one event loop, and the calls that share a pipeline.

    A read is the names of its hashes, and a write the script and its arguments.
    """

    def __init__(self, redis: Redis, pool: int) -> None:
        self.redis = redis
        self.lifetime = close_with_loop(redis)
        self.reads = CallQueue[Sequence[bytes], Any](self._read, max_lanes=pool)
        self.writes = CallQueue[tuple[Script, Sequence[bytes]], Any](self._write, max_lanes=pool)

    async def _read(self, take: Take[Sequence[bytes]]) -> Sequence[Any]:
        calls = take(lambda _: True)
        # A transaction, because a batch may be written between two reads.
        commands = [("HMGET", name, "v", "e") for names in calls for name in names]
        rows = iter(await self._run(commands, transaction=len(commands) > 1))
        outcomes = []
        for names in calls:
            found = list(islice(rows, len(names)))
            failures = (row for row in found if isinstance(row, RedisError))
            outcomes.append(next(failures, found))
        return outcomes

    async def _write(self, take: Take[tuple[Script, Sequence[bytes]]]) -> Sequence[Any]:
        calls = take(lambda _: True)
        commands = [("EVALSHA", script.digest, *arguments) for script, arguments in calls]
        outcomes = await self._run(commands)
        unknown = [at for at, each in enumerate(outcomes) if isinstance(each, NoScriptError)]
        if unknown:
            for script in {calls[at][0] for at in unknown}:
                await self.redis.script_load(script.text)
            again = await self._run([commands[at] for at in unknown])
            for at, outcome in zip(unknown, again, strict=True):
                outcomes[at] = outcome
        return outcomes

    async def _run(
        self, commands: Iterable[Sequence[Any]], *, transaction: bool = False
    ) -> list[Any]:
        async with self.redis.pipeline(transaction=transaction) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            found: list[Any] = await pipeline.execute(raise_on_error=False)
            return found


class RedisStateStore(RemoteStateStore[RedisClient]):
    """A store in a Redis server, version 6 or later, or a compatible one.

    ``put_many`` and ``get_many`` are atomic. Durability depends on the server: with ``appendonly
    yes`` and ``appendfsync always`` a crash loses nothing that was acknowledged, with ``everysec``
    up to a second, and with neither everything since the last snapshot. The server must not evict
    keys (``maxmemory-policy noeviction``). A value has at most 512 MB. Cluster nodes are refused,
    because this client does not follow redirects.
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
        notify: bool = True,
    ) -> None:
        super().__init__(url, timeout=timeout, patience=patience)
        self._target = target
        self.wakes_other_processes = notify
        self._pool_size = pool
        tag = b"{holdfast:%b}:" % validate_namespace(namespace)
        self._keys = tag + b"keys"
        self._entry = tag + b"e:"
        self._token = tag + b"d:"
        self._channel = tag + b"w:"
        # Longer than all attempts of a write take, and a slow one's time on the network.
        self._token_seconds = min(math.ceil(2 * (patience + timeout) + 60), YEAR)

    def _create_listener(self) -> RedisListener:
        return RedisListener(
            lambda: self._create_pool(1).get_connection(),
            self._channel,
            timeout=self._timeout,
            explain=self._explain_briefly,
        )

    def _create_pool(self, size: int) -> ConnectionPool:
        return ConnectionPool.from_url(
            self._target,
            max_connections=size,
            # Less than an attempt's timeout, after which the outcome of a write would be unknown.
            timeout=self._timeout * 0.9,
            socket_timeout=None,
            socket_connect_timeout=self._timeout,
            decode_responses=False,
            # With protocol 3, redis-py does not notice that the server closed an idle connection.
            protocol=2,
            # RemoteStateStore retries, and knows when a write was already applied.
            retry=Retry(NoBackoff(), 0),
        )

    async def _connect(self) -> RedisClient:
        redis = Redis.from_pool(self._create_pool(self._pool_size))
        client = RedisClient(redis, self._pool_size)
        await anext(client.lifetime)
        try:
            await redis.ping()
        except BaseException:
            await self._disconnect(client)
            raise
        return client

    async def _disconnect(self, client: RedisClient) -> None:
        await client.lifetime.aclose()

    async def _get(self, key: str) -> Entry | None:
        return (await self._get_many([key])).get(key)

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        names = [self._entry + key.encode() for key in keys]
        rows = await self._run(lambda client, _unsure: client.reads.submit(names))
        return {
            key: Entry(value, etag.decode())
            for key, (value, etag) in zip(keys, rows, strict=True)
            if etag is not None
        }

    async def _page(self, key_range: KeyRange, count: int) -> Sequence[str]:
        low = (b"(" if key_range.exclusive else b"[") + key_range.low.encode()
        high = b"+" if key_range.high is None else b"(" + key_range.high.encode()
        members: Sequence[Any] = await self._run(
            lambda client, _unsure: client.redis.zrangebylex(self._keys, low, high, 0, count)
        )
        return [member.decode() for member in members]

    async def _put(self, put: Put) -> str:
        return (await self._put_many([put]))[0]

    async def _put_many(self, puts: Sequence[Put], conditions: Sequence[Condition] = ()) -> Etags:
        batch = BatchWrite.create(puts, conditions)
        members = [put.key.encode() for put in puts]
        needed = [condition.key.encode() for condition in conditions]
        expected = [encode_condition(condition.etag)[1] for condition in conditions]
        values = chain.from_iterable(
            (
                member,
                etag.encode(),
                *encode_condition(put.if_match, absent=put.if_absent),
                put.value,
            )
            for put, member, etag in zip(puts, members, batch.etags, strict=True)
        )
        failed, found = await self._write(
            PUT_SCRIPT,
            batch.token,
            [*needed, *members],
            [b"%d" % len(needed), *expected, *values, *self._notification([p.key for p in puts])],
        )
        if failed:
            raise batch.conflict(failed - 1, found and found.decode())
        return batch.etags

    async def _delete(self, key: str, if_match: str | None) -> bool:
        member = key.encode()
        deleted, found = await self._write(
            DELETE_SCRIPT,
            new_token(),
            [member],
            [member, *encode_condition(if_match), *self._notification([key])],
        )
        if not deleted and if_match is not None:
            raise etag_mismatch_error(key, if_match, found and found.decode())
        return bool(deleted)

    def _notification(self, keys: Sequence[str]) -> tuple[bytes, bytes]:
        """Return the channel and the notification of a write."""
        if not self.wakes_other_processes or not keys:
            return b"", b""
        topic = find_topic(find_common_prefix(keys))
        return self._channel + topic.encode(), encode_notification(keys)

    async def _write(
        self, script: Script, token: str, members: Sequence[bytes], values: Iterable[bytes]
    ) -> Any:
        """Run a script that writes, with a token that is the same for all attempts."""
        keys = [self._keys, self._token + token.encode()]
        keys += [self._entry + member for member in members]
        arguments = [b"%d" % len(keys), *keys, b"%d" % self._token_seconds, *values]
        return await self._run(
            lambda client, _unsure: client.writes.submit((script, arguments)), writes=True
        )

    def _explain_error(self, error: Exception) -> StateStoreError:
        return explain_error(error, self.display_url)


async def close_with_loop(redis: Redis) -> AsyncGenerator[None]:
    """Close a client when its event loop ends.

    ``asyncio.run()`` closes async generators that are still open, and so this one. That closes the
    connections of a store that is used in another event loop next, or was never closed.
    """
    try:
        yield
    finally:
        await redis.aclose()


def encode_condition(if_match: str | None, *, absent: bool = False) -> tuple[bytes, bytes]:
    """Return a condition for a script: its kind and the expected etag."""
    if if_match is not None:
        # The caller may pass any text; what no store returned matches nothing.
        return b"match", if_match.encode(errors="surrogatepass")
    return (b"absent" if absent else b""), b""


def validate_namespace(namespace: str) -> bytes:
    """Return a namespace as bytes. It has no braces, which would end the hash tag.

    Raises:
        StateStoreError: It is invalid.

    """
    if not re.fullmatch(r"[^\s{}]{1,200}", namespace):
        raise StateStoreError(
            "option namespace of the redis URL must have 1 to 200 characters without spaces or "
            f"braces, got {short_repr(namespace)}"
        )
    return namespace.encode()


def open_url(url: StoreURL) -> RedisStateStore:
    """Open ``redis://user:password@host:port/number``, or ``rediss://`` for TLS."""
    timeout = url.take_number("timeout", TIMEOUT, least=0.01)
    patience = url.take_number("patience", PATIENCE)
    pool = url.take_count("pool", POOL, least=1)
    namespace = url.take("namespace", NAMESPACE) or NAMESPACE
    notify = url.take_flag("notify", default=True)
    known = (*DRIVER_OPTIONS, *(TLS_OPTIONS if url.scheme == "rediss" else ()))
    driver_options = {name: url.options.pop(name) for name in known if name in url.options}
    url.reject_unknown_options((*STORE_OPTIONS, *known))
    url.options.update(driver_options)
    if not re.fullmatch(r"/?[0-9]*", url.path):
        raise StateStoreError(
            f"path of the URL {url} must be a database number such as /0; to separate stores, use "
            "the option namespace"
        )
    protocol = url.options.get("protocol", "2")
    if protocol not in {"2", "3"}:
        raise StateStoreError(
            f"option protocol of the redis URL must be 2 or 3, got {short_repr(protocol)}"
        )
    target = url.text()
    try:
        parse_url(target)
    except ValueError as error:
        raise StateStoreError(f"invalid URL {url}: {url.mask(str(error))}") from None
    return RedisStateStore(
        url,
        target,
        namespace=namespace,
        pool=pool,
        timeout=timeout,
        patience=patience,
        notify=notify,
    )
