"""The broker's HTTP port: probes, metrics and load, and `/`, which lists its paths.

It answers as soon as the process has read its settings. While logs are recovered, `/healthz` and
`/readyz` answer 503 with the progress as JSON, so that a broker in recovery is never taken for a
dead one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from fairlead_broker.http.load_page import build_load
from fairlead_broker.http.metrics_page import MetricsPage
from fairlead_broker.http.readiness import Phase
from fairlead_sockets.http_site import HTTP_KEEPALIVE_S, BoundedSite
from fairlead_sockets.listening import bound_port, open_listening_socket

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.http.readiness import Readiness
    from fairlead_broker.settings import HttpAddress

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_SIZE_MAX: Final = 64 * 1024
INDEX: Final = """A broker of Fairlead. Kafka clients use another port; here are

/healthz   200 once the logs are open, 503 with the progress before; log directories that failed
/livez     200 while the process runs
/readyz    200 while it serves clients
/certificates  what TLS listeners show and trust, by SHA-256
/metrics   for Prometheus
/load      bytes of each replica here, and bytes a second of those that lead
"""


class HttpServer:
    """Serves probes at once and metrics as soon as there is a broker."""

    def __init__(self, readiness: Readiness) -> None:
        self.metrics = MetricsPage(readiness)
        self.certificates: Callable[[], dict[str, Any]] = dict
        """Certificates that TLS listeners show and trust; empty until they listen."""
        self._readiness = readiness
        self._runner: web.AppRunner | None = None

    async def start(self, address: HttpAddress) -> int:
        """Listen; return the port number, which matters if the address has port 0."""
        application = web.Application(client_max_size=REQUEST_SIZE_MAX)
        application.add_routes(
            [
                web.get("/", self._index),
                web.get("/certificates", self._certificates),
                web.get("/healthz", self._healthz),
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/load", self._load),
            ]
        )
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=HTTP_KEEPALIVE_S,
        )
        await self._runner.setup()
        listening = open_listening_socket(address.host, address.port)
        await BoundedSite(self._runner, listening).start()
        return bound_port(listening)

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _index(self, _: web.Request) -> web.Response:
        """Answer a person who opens the address that `fairlead up` shows."""
        return web.Response(text=INDEX)

    async def _certificates(self, _: web.Request) -> web.Response:
        return web.json_response(self.certificates())

    async def _healthz(self, _: web.Request) -> web.Response:
        is_healthy = self._readiness.phase is not Phase.LOADING
        answer = self._readiness.describe()
        broker = self.metrics.broker
        if broker is not None and broker.log_directories.failures:
            answer["failedLogDirectories"] = dict(broker.log_directories.failures)
        # Before it serves, the broker has not loaded the logs of these directories.
        if broker is not None and self._readiness.is_ready and broker.log_directories.cordoned:
            answer["drainedLogDirectories"] = broker.log_directories.drained
        return web.json_response(answer, status=200 if is_healthy else 503)

    async def _livez(self, _: web.Request) -> web.Response:
        """Answer, which proves that the event loop runs, however long recovery takes."""
        return web.json_response(self._readiness.describe())

    async def _readyz(self, _: web.Request) -> web.Response:
        is_ready = self._readiness.is_ready
        return web.json_response(self._readiness.describe(), status=200 if is_ready else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        page = await self.metrics.text()
        return web.Response(body=page.encode(), headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def _load(self, _: web.Request) -> web.Response:
        broker = self.metrics.broker
        if broker is None:
            return web.json_response(self._readiness.describe(), status=503)
        capacity = await self.metrics.capacity()
        return web.json_response(text=await build_load(broker, capacity))
