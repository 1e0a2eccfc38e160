"""The wiring: settings in, one Starlette application out.

The lifespan owns what lives as long as the process: the ticker, the bus and the publisher behind `POST /v1/publish`.
Routes decide and hold no state.
"""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from tidings import AsyncPublisher
from tidings.redis_url import parse_redis_url
from tidings_gateway.auth.origin import OriginPolicy
from tidings_gateway.auth.tokens import TokenVerifier
from tidings_gateway.bus.bus import Bus
from tidings_gateway.bus.cluster import ClusterBus
from tidings_gateway.bus.endpoint import endpoint_of
from tidings_gateway.gateway import Gateway
from tidings_gateway.http.health import Health, unready_because
from tidings_gateway.http.problem import exception_handlers
from tidings_gateway.http.routes import admin_routes, http_routes
from tidings_gateway.readings import Readings
from tidings_gateway.server.admin import AdminServer, CannotListen, bind
from tidings_gateway.server.draining import Draining
from tidings_gateway.server.server import serve
from tidings_gateway.server.settings import ServerSettings
from tidings_gateway.settings import Settings
from tidings_gateway.settings.values import Listen
from tidings_gateway.telemetry.counts import Counts
from tidings_gateway.telemetry.exposition import Exposition
from tidings_gateway.telemetry.lag import LagWatch
from tidings_gateway.ticker import Ticker
from tidings_gateway.transports.upgrade import websocket_route
from tidings_gateway.wiring import create_bus, create_hub, session_limits

TOLD_AT_ONCE = 64
"""Sockets above `max_connections` that are still let in, to be told 4429: a page cannot see the status of a refused
upgrade. Beyond these it is 503."""

log = logging.getLogger("tidings.app")


def run(settings: Settings) -> int:
    """Serve until a signal ends it; returns the exit code. For the main thread of a process of its own.

    Raises `CannotListen` when the address of TIDINGS_ADMIN_LISTEN was given and cannot be had.
    """
    draining = Draining()
    admin = bind_admin(settings)
    counts = Counts()
    try:
        app = create_app(settings, draining, counts=counts, admin=admin)
        return serve(app, server_settings(settings), draining, counts.refused)
    finally:
        if admin is not None:
            admin.close()


def bind_admin(settings: Settings) -> socket.socket | None:
    """The operator's address, if there is to be one. A second gateway on a machine where nobody thought of that address
    works all the same, and says what it lacks; one that was told the address must not leave its operator blind."""
    if settings.admin_listen is None:
        return None
    try:
        return bind(*settings.admin_listen)
    except CannotListen as error:
        if "admin_listen" in settings.model_fields_set:
            raise
        log.warning(
            "no /metrics: %s (%s). Give this gateway a TIDINGS_ADMIN_LISTEN of its own, or an empty one",
            settings.admin_listen,
            error.why,
        )
        return None


def create_app(
    settings: Settings, draining: Draining, *, counts: Counts | None = None, admin: socket.socket | None = None
) -> Starlette:
    """Reads keys and the client's files: call it before the event loop serves. `admin` is the listener of /metrics,
    which is closed with the application.

    Raises `InvalidSetting` for a Redis URL that cannot be used, `InvalidKey` for a key that cannot be read and
    `MissingAsset` for an incomplete installation.
    """
    # What the bus would refuse is refused here, in words: from within the lifespan it would be a traceback.
    endpoint_of(parse_redis_url(settings.redis_url))
    gateway = create_gateway(settings, counts)
    hub = gateway.hub
    note_lag(gateway)
    publisher = AsyncPublisher(
        settings.redis_url,
        prefix=settings.prefix,
        log_max_events=settings.log_max_events,
        log_ttl_s=settings.log_ttl_s,
        meta_ttl_s=settings.meta_ttl_s,
        idempotency_ttl_s=settings.idempotency_ttl_s,
        max_event_bytes=settings.max_event_bytes,
        failover=settings.failover,
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        bus = create_bus(settings, hub)
        hub.attach(bus)
        gateway.ticker.start()
        await bus.start()
        async with AsyncExitStack() as stack:
            if admin is not None:
                await stack.enter_async_context(_admin(bus, admin))
            try:
                yield
            finally:
                gateway.ticker.stop()
                await bus.close()
                await publisher.close()

    @asynccontextmanager
    async def _admin(bus: Bus | ClusterBus, listener: socket.socket) -> AsyncIterator[None]:
        store_always = settings.ready_redis == "always"
        readings = Readings(
            gateway, bus, draining, lambda: unready_because(health(), store_always=store_always) is None
        )
        routes = admin_routes(settings, health=health, exposition=Exposition(readings))
        server = AdminServer(Starlette(routes=routes, exception_handlers=exception_handlers()), listener)
        await server.start()
        address = Listen(settings.admin_listen.host if settings.admin_listen else "", server.port)
        log.info("metrics on http://%s/metrics, with /livez and /readyz beside", address)
        try:
            yield
        finally:
            await server.close()

    def health() -> Health:
        bus = hub.bus
        return Health(draining=draining.started, store_reached=bus.reached, store_up=bus.up)

    app = Starlette(
        routes=[
            WebSocketRoute("/v1/ws", websocket_route(gateway)),
            *http_routes(
                settings, publisher=publisher, origins=gateway.origins, health=health, counts=gateway.hub.counts
            ),
        ],
        exception_handlers=exception_handlers(),
        lifespan=lifespan,
    )
    # A redirect would show an API key to whatever address a proxy makes of it, and follows no POST.
    app.router.redirect_slashes = False
    return app


def note_lag(gateway: Gateway) -> None:
    """The ticker's lateness is the event loop's: into the histogram, and into the log where it is much."""
    lag = gateway.hub.counts.loop_lag
    watch = LagWatch(gateway.settings.loop_lag_ms / 1000)

    def note(late_s: float) -> None:
        lag.observe(late_s)
        if (words := watch.noted(late_s, gateway.now())) is not None:
            log.warning("%s", words)

    gateway.ticker.on_late = note


def create_gateway(settings: Settings, counts: Counts | None = None) -> Gateway:
    """Everything a connection needs, not yet started."""
    return Gateway(
        # Unique over restarts too, also for a gateway that has a name.
        id="-".join(filter(None, (settings.gateway_name, secrets.token_hex(3)))),
        settings=settings,
        hub=create_hub(settings, counts),
        ticker=Ticker(),
        limits=session_limits(settings),
        tokens=TokenVerifier.from_settings(settings),
        origins=OriginPolicy(settings.allowed_origins),
    )


def server_settings(settings: Settings) -> ServerSettings:
    return ServerSettings(
        host=settings.listen.host,
        port=settings.listen.port,
        base_path=settings.base_path,
        trusted_proxies=settings.trusted_proxies,
        max_connections=settings.max_connections + TOLD_AT_ONCE,
        header_timeout_ms=settings.header_timeout_ms,
        slow_timeout_ms=settings.slow_timeout_ms,
        max_header_bytes=settings.max_header_bytes,
        max_frame_bytes=settings.max_frame_bytes,
        inbound_frames_per_s=settings.inbound_frames_per_s,
        inbound_bytes_per_s=settings.inbound_bytes_per_s,
        write_high_water_bytes=settings.write_high_water_bytes,
        send_buffer_bytes=settings.send_buffer_bytes,
        close_timeout_ms=settings.close_timeout_ms,
        drain_grace_ms=settings.drain_grace_ms,
        drain_window_ms=settings.drain_window_ms,
        retry_ms=settings.retry_ms,
    )
