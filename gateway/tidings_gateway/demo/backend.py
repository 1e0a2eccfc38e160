"""The demo's application: what your own backend would be. It serves the page, knows the state, and publishes."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidings import AsyncPublisher
from tidings.errors import PublishError
from tidings.log.eventlog import EventLog
from tidings.log.position import FullPosition
from tidings.publishing.message import Message
from tidings.tokens import mint_token
from tidings_gateway.assets import Asset
from tidings_gateway.demo.gateways import GatewayProcess, rolling_restart
from tidings_gateway.demo.jobs import MAX_VISITORS, TooManyJobs, Visitor, Worker
from tidings_gateway.embedded import EmbeddedValkey
from tidings_gateway.explain import explain, parse
from tidings_gateway.http.body import read_json
from tidings_gateway.http.problem import ProblemError, exception_handlers

COOKIE = "tidings_demo"
TOKEN_TTL_S = 300
MAX_BODY_BYTES = 1_024
MAX_JOB_S = 60
MAX_BURST = 1_000
MAX_FREEZE_S = 10


@dataclass(slots=True)
class Stage:
    """Everything the page's buttons move."""

    publisher: AsyncPublisher
    event_log: EventLog
    worker: Worker
    gateways: list[GatewayProcess]
    valkey: EmbeddedValkey
    jwt_secret: str
    origins: tuple[str, ...]
    """Of the page: `http://127.0.0.1:8000`, and the same by name."""
    tabs: Callable[[int], int] = lambda _port: 0
    """How many WebSockets the front leads to the gateway on a port."""
    visitors: OrderedDict[str, Visitor] = field(default_factory=OrderedDict)
    """By the secret in their cookie; the oldest make room."""
    busy: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """The restart and the freeze that are going on."""

    def visitor(self, request: Request) -> Visitor:
        """Raises `ProblemError` when the browser has no session yet."""
        visitor = self.visitors.get(request.cookies.get(COOKIE, ""))
        if visitor is None:
            raise ProblemError(401, "no_session", "GET /demo/session first.")
        return visitor

    def new_visitor(self) -> tuple[str, Visitor]:
        secret, visitor = secrets.token_urlsafe(24), Visitor(f"visitor-{secrets.token_hex(3)}")
        self.visitors[secret] = visitor
        while len(self.visitors) > MAX_VISITORS:
            self.visitors.popitem(last=False)
        return secret, visitor

    def going_on(self, what: str) -> bool:
        task = self.busy.get(what)
        return task is not None and not task.done()

    def begin(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Raises `ProblemError` when the same is going on already."""
        if self.going_on(what):
            work.close()
            raise ProblemError(409, "going_on", f"A {what} is going on already.")
        self.busy[what] = asyncio.create_task(work)

    async def close(self) -> None:
        for task in self.busy.values():
            task.cancel()
        await asyncio.gather(*self.busy.values(), return_exceptions=True)
        self.valkey.thaw()


def create_backend(stage: Stage, files: dict[str, Asset]) -> Starlette:
    """`files` are those of the page, by name; `index.html` is at `/`, the others are below `/demo/`."""

    async def session(request: Request) -> Response:
        visitor = stage.visitors.get(secret := request.cookies.get(COOKIE, ""))
        if visitor is None:
            secret, visitor = stage.new_visitor()
        token = mint_token(visitor.user, ttl_s=TOKEN_TTL_S, secret=stage.jwt_secret)
        answer = _json({"token": token, "user": visitor.user})
        answer.set_cookie(COOKIE, secret, httponly=True, samesite="strict", path="/demo")
        return answer

    async def state(request: Request) -> Response:
        visitor = stage.visitor(request)
        # First the position, then the state: whatever happens in between is in the state, and comes as an event too.
        # The other way round it would be in neither.
        try:
            position = await stage.publisher.position(visitor.user)
        except PublishError:
            raise ProblemError(503, "unavailable", "Redis does not answer.", headers={"retry-after": "1"}) from None
        return _json(
            {
                "position": position,
                "jobs": [job.seen() for job in reversed(visitor.jobs.values())],
                "published": FullPosition.parse(position).personal.seq,
            }
        )

    async def on_stage(request: Request) -> Response:
        # Without a question to Redis: this is what the page shows while Redis is frozen.
        stage.visitor(request)
        return _json(
            {
                "gateways": [
                    {
                        "name": gateway.name,
                        "state": gateway.state,
                        "pid": gateway.pid,
                        "starts": gateway.starts,
                        "tabs": stage.tabs(gateway.port),
                    }
                    for gateway in stage.gateways
                ],
                "frozen": stage.going_on("freeze"),
                "restarting": stage.going_on("restart"),
            }
        )

    async def start_job(request: Request) -> Response:
        visitor = stage.visitor(request)
        seconds = await _number(request, "seconds", MAX_JOB_S)
        try:
            job = stage.worker.start(visitor, seconds)
        except TooManyJobs:
            raise ProblemError(429, "too_many", "Enough jobs are running.", headers={"retry-after": "5"}) from None
        return _json({"id": job.id}, status=202)

    async def burst(request: Request) -> Response:
        visitor = stage.visitor(request)
        count = int(await _number(request, "count", MAX_BURST))
        name = secrets.token_hex(3)
        results = await stage.publisher.publish_many(
            Message(visitor.user, "burst.item", {"burst": name, "number": number, "of": count})
            for number in range(1, count + 1)
        )
        failed = [result for result in results if isinstance(result, Exception)]
        if failed:
            unknown = sum(isinstance(result, PublishError) and result.outcome_unknown for result in failed)
            raise _unacknowledged(count, len(failed), unknown)
        return _json({"published": count})

    async def restart(request: Request) -> Response:
        stage.visitor(request)
        name = (await _object(request)).get("gateway")
        chosen = [gateway for gateway in stage.gateways if name in (None, gateway.name)]
        if not chosen:
            raise ProblemError(400, "invalid", "gateway: there is none of that name.", field="gateway")
        stage.begin("restart", rolling_restart(chosen))
        return _json({"gateways": [gateway.name for gateway in chosen]}, status=202)

    async def freeze(request: Request) -> Response:
        stage.visitor(request)
        seconds = await _number(request, "seconds", MAX_FREEZE_S)
        stage.begin("freeze", _freeze(stage.valkey, seconds))
        return _json({}, status=202)

    async def explain_position(request: Request) -> Response:
        visitor = stage.visitor(request)
        position = parse(request.query_params.get("position", ""))
        try:
            page = await stage.event_log.read_after(visitor.user, str(position) if position else None, limit=0)
        except (OSError, TimeoutError) as error:
            raise ProblemError(503, "unavailable", "Redis does not answer.", headers={"retry-after": "1"}) from error
        return Response(explain(position, page), media_type="text/plain; charset=utf-8", headers=_NOT_KEPT)

    return Starlette(
        routes=[
            Route("/", _file(files["index.html"], stage.origins)),
            Route("/demo/session", session),
            Route("/demo/state", state),
            Route("/demo/stage", on_stage),
            Route("/demo/jobs", start_job, methods=["POST"]),
            Route("/demo/burst", burst, methods=["POST"]),
            Route("/demo/restart", restart, methods=["POST"]),
            Route("/demo/freeze", freeze, methods=["POST"]),
            Route("/demo/explain", explain_position),
            *(Route(f"/demo/{name}", _file(asset, stage.origins)) for name, asset in files.items()),
        ],
        exception_handlers=exception_handlers(),
    )


_NOT_KEPT = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def _json(body: Any, status: int = 200) -> JSONResponse:
    return JSONResponse(body, status_code=status, headers=_NOT_KEPT)


def _file(asset: Asset, origins: tuple[str, ...]) -> Callable[[Request], Awaitable[Response]]:
    # A browser that does not take 'self' for the socket's address as well needs it spelled out.
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        f"connect-src 'self' {' '.join(origin.replace('http', 'ws', 1) for origin in origins)}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        **_NOT_KEPT,
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }

    async def answer(_request: Request) -> Response:
        return Response(asset.body, media_type=asset.media_type, headers=headers)

    return answer


def _unacknowledged(count: int, failed: int, unknown: int) -> ProblemError:
    """What a worker would be told, in the words of a page: no receipt is not the same as not stored."""
    whether = (
        "Redis did not answer in time, so nobody knows yet whether they are stored."
        if unknown == failed
        else "Redis could not be reached, so they are not stored."
        if unknown == 0
        else f"Whether {unknown:,} of those are stored, nobody knows yet; the others are not."
    )
    detail = f"No receipt for {failed:,} of {count:,} events. {whether}"
    return ProblemError(503, "unacknowledged", detail, headers={"retry-after": "1"}, failed=failed, unknown=unknown)


async def _object(request: Request) -> dict[str, Any]:
    """JSON only, which a page of another site cannot send without asking first."""
    body = await read_json(request, MAX_BODY_BYTES)
    if not isinstance(body, dict):
        raise ProblemError(400, "invalid", "The body must be a JSON object.")
    return body


async def _number(request: Request, name: str, most: float) -> float:
    value = (await _object(request)).get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= most:
        raise ProblemError(400, "invalid", f"{name}: must be a number above 0, at most {most}.", field=name)
    return value


async def _freeze(valkey: EmbeddedValkey, seconds: float) -> None:
    valkey.freeze()
    try:
        await asyncio.sleep(seconds)
    finally:
        valkey.thaw()
