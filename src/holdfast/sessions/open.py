"""The awaitable that `Session.open` returns."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

SessionT = TypeVar("SessionT", bound=AbstractAsyncContextManager[Any])


class SessionOpener(Generic[SessionT]):
    """Opens a session when it is awaited, or entered with ``async with``."""

    def __init__(self, opening: Coroutine[Any, Any, SessionT]) -> None:
        self._opening = opening
        self._session: SessionT | None = None

    def __await__(self) -> Generator[Any, None, SessionT]:
        return self._opening.__await__()

    async def __aenter__(self) -> SessionT:
        self._session = await self
        return self._session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.__aexit__(kind, error, trace)
