"""The port for probes, Prometheus and people: it only shows.

`/healthz`, `/readyz`, `/metrics`, `/status`, and of each cluster `/status/NS/NAME`,
`/status/NS/NAME/topics/TOPIC`, `/explain/NS/NAME` and `/explain/NS/NAME/TOPIC/PARTITION`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from fairlead_controller.candidate.cluster_pages import explain, status_of, topic_page
from fairlead_controller.candidate.reign import Government, Reign
from fairlead_controller.candidate.session_gate import ClusterKey
from fairlead_model.refusals import RefusedError

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Pages:
    """What the port answers; the process says what is true."""

    def __init__(
        self,
        *,
        describe: Callable[[], dict[str, Any]],
        problems: Callable[[], list[str]],
        is_ready: Callable[[], bool],
        find_reign: Callable[[ClusterKey], Reign | None],
        metrics: Callable[[], Awaitable[bytes]],
    ) -> None:
        """`problems` are those that only a restart can cure."""
        self._describe = describe
        self._problems = problems
        self._is_ready = is_ready
        self._find_reign = find_reign
        self._metrics = metrics

    def build_application(self) -> web.Application:
        """Give the application for the HTTP port."""
        application = web.Application(client_max_size=64 << 10)
        cluster = "{namespace}/{cluster}"
        application.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics_page),
                web.get("/status", self._state),
                web.get(f"/status/{cluster}", self._status),
                web.get(f"/status/{cluster}/topics/{{topic}}", self._topic),
                web.get(f"/explain/{cluster}", self._journal),
                web.get(f"/explain/{cluster}/{{topic}}/{{partition:[0-9]+}}", self._explain),
            ]
        )
        return application

    async def _healthz(self, request: web.Request) -> web.Response:
        problems = self._problems()
        body: Mapping[str, Any] = {"status": "wedged" if problems else "ok", "problems": problems}
        return web.json_response(body, status=503 if problems else 200)

    async def _readyz(self, request: web.Request) -> web.Response:
        is_ready = self._is_ready()
        body = {"role": self._describe()["role"], "ready": is_ready}
        return web.json_response(body, status=200 if is_ready else 503)

    async def _metrics_page(self, request: web.Request) -> web.Response:
        text = await self._metrics()
        return web.Response(body=text, headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def _state(self, request: web.Request) -> web.Response:
        return web.json_response(self._describe())

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(await status_of(self._government(request)))

    async def _topic(self, request: web.Request) -> web.Response:
        return self._page(topic_page, request)

    async def _journal(self, request: web.Request) -> web.Response:
        journal = self._government(request).controller.journal
        return web.json_response({"decisions": journal.sentences()})

    async def _explain(self, request: web.Request) -> web.Response:
        return self._page(explain, request)

    def _page(
        self, build: Callable[[Government, web.Request], dict[str, Any]], request: web.Request
    ) -> web.Response:
        try:
            return web.json_response(build(self._government(request), request))
        except RefusedError as refusal:
            raise web.HTTPNotFound(text=refusal.message) from refusal

    def _government(self, request: web.Request) -> Government:
        key = (request.match_info["namespace"], request.match_info["cluster"])
        reign = self._find_reign(key)
        if reign is None:
            raise web.HTTPNotFound(text="this process does not reign over such a cluster")
        if reign.government is None:
            raise web.HTTPServiceUnavailable(text=reign.problem)
        return reign.government
