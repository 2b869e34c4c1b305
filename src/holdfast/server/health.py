"""Routes for those who run it: is it alive, can it work, what did it do, who am I."""

from __future__ import annotations

import asyncio
import logging

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

import holdfast
from holdfast.errors import HoldfastError
from holdfast.server import schemas
from holdfast.server.auth import Tokens, get_authority
from holdfast.server.context import Context, json_response
from holdfast.server.problems import RESPONSES, Problem

logger = logging.getLogger(__name__)
router = APIRouter(tags=["operate"], responses=RESPONSES)

READY_TIMEOUT = 5.0


@router.get("/health/live", response_model=schemas.Live, operation_id="get_live")
async def check_live() -> Response:
    """Return whether the server runs."""
    return json_response({"status": "live"})


@router.get("/health/ready", response_model=schemas.Ready, operation_id="get_ready")
async def check_ready(request: Request, context: Context) -> Response:
    """Return whether the server can read its store."""
    try:
        async with asyncio.timeout(READY_TIMEOUT):
            await context.catalog.agents(limit=1)
    except (HoldfastError, TimeoutError) as error:
        detail = str(error) or f"the store did not answer within {READY_TIMEOUT:g} s"
        logger.error("not ready: %s", detail)  # noqa: TRY400 - the message is enough
        if get_authority(request).scope is None:
            # Without authorization, do not reveal details of the store.
            detail = "cannot read the store; see the server's log"
        raise Problem(503, detail, hint="run holdfast doctor") from error
    return json_response({"status": "ready", "version": holdfast.__version__})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    operation_id="get_metrics",
)
async def get_metrics(request: Request, context: Context) -> Response:
    """Return metrics for Prometheus."""
    get_authority(request).check_unlimited()
    return Response(context.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/access", response_model=schemas.Access, operation_id="get_access")
async def get_access(request: Request) -> Response:
    """Return what the token of the request allows."""
    authority = get_authority(request)
    tokens: Tokens = request.app.state.tokens
    agents = None if authority.agents is None else sorted(authority.agents)
    return json_response({"required": bool(tokens), "scope": authority.scope, "agents": agents})
