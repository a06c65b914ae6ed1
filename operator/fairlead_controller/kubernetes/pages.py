"""The port for probes and Prometheus: `/healthz`, `/readyz` and `/metrics`.

Everybody who reaches the port may read it, so it shows little, at low cost. Only the socket of the
pod (`admin_api`) shows the state of a cluster and the reasons for it: that takes time of this
process, which it needs to elect leaders, and the state belongs to one namespace.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Pages:
    """What the port answers; the process supplies the facts."""

    def __init__(
        self,
        *,
        role: Callable[[], str],
        problems: Callable[[], list[str]],
        is_ready: Callable[[], bool],
        metrics: Callable[[], Awaitable[bytes]],
    ) -> None:
        """`problems` returns the problems that only a restart of the process can fix."""
        self._role = role
        self._problems = problems
        self._is_ready = is_ready
        self._metrics = metrics

    def build_application(self) -> web.Application:
        """Return the application for the HTTP port."""
        application = web.Application(client_max_size=64 << 10)
        application.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics_page),
            ]
        )
        return application

    async def _healthz(self, request: web.Request) -> web.Response:
        problems = self._problems()
        body: Mapping[str, Any] = {"status": "wedged" if problems else "ok", "problems": problems}
        return web.json_response(body, status=503 if problems else 200)

    async def _readyz(self, request: web.Request) -> web.Response:
        is_ready = self._is_ready()
        body = {"role": self._role(), "ready": is_ready}
        return web.json_response(body, status=200 if is_ready else 503)

    async def _metrics_page(self, request: web.Request) -> web.Response:
        text = await self._metrics()
        return web.Response(body=text, headers={"Content-Type": METRICS_CONTENT_TYPE})
