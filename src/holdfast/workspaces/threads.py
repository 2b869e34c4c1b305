"""Run file operations in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ParamSpec, TypeVar

from holdfast.stores.local import RUN_INLINE, gather

P = ParamSpec("P")
T = TypeVar("T")


async def run_to_end(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a thread; if the caller is cancelled, wait for it first.

    So the caller can close a descriptor that the function uses: its number may be used again.
    """
    if RUN_INLINE.get():
        return function(*args, **kwargs)
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


async def run_all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines concurrently to their ends, and raise the first error."""

    async def catch(work: Coroutine[Any, Any, None]) -> Exception | None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - raised below
            return error
        return None

    for error in await gather([catch(work) for work in works]):
        if error is not None:
            raise error
