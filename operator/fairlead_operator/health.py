"""The kopf process' own port: /healthz with checks, /readyz, /metrics.

It is healthy while standing by. While it acts, the informers must have proof that they miss
nothing, and no pass may have lasted for minutes. While the API server is away neither shows a
problem of this process, which a restart would not help.
"""

from collections.abc import Callable
from typing import Any, Final

from aiohttp import web
from prometheus_client import generate_latest

from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.metrics import OperatorMetrics
from fairlead_sockets.http_site import HTTP_KEEPALIVE_S, BoundedSite
from fairlead_sockets.listening import bound_port, open_listening_socket

INFORMER_AGE_S_MAX: Final = 120.0
PASS_S_MAX: Final = 300.0
"""The loop gives a pass up much sooner: such a one did not even end when it was cancelled."""
ANSWERS_STOP_S: Final = 0.2
"""How long answers may take that are under way when this process ends."""
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def find_problems(*, informer_ages_s: dict[str, float], oldest_pass_s: float) -> list[str]:
    """Return what is wrong; the ages are by kind."""
    problems = [
        f"{kind}: no proof of freshness for {age_s:.0f} s"
        for kind, age_s in sorted(informer_ages_s.items())
        if age_s > INFORMER_AGE_S_MAX
    ]
    if oldest_pass_s > PASS_S_MAX:
        problems.append(f"a pass has been going on for {oldest_pass_s:.0f} s")
    return problems


class HealthServer:
    """Serves from the start of the process."""

    def __init__(
        self,
        metrics: OperatorMetrics,
        refresh: Callable[[], None],
        is_api_away: Callable[[], bool],
    ) -> None:
        self._live: LiveObjects | None = None
        self.port = 0
        self._metrics = metrics
        self._refresh = refresh
        self._is_api_away = is_api_away
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> None:
        """Listen; port 0 takes a free one."""
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._serve_metrics)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=ANSWERS_STOP_S,
            keepalive_timeout=HTTP_KEEPALIVE_S,
        )
        await self._runner.setup()
        listening = open_listening_socket("", port)
        await BoundedSite(self._runner, listening).start()
        self.port = bound_port(listening)

    def begin(self, live: LiveObjects) -> None:
        """Check the informers from now on, because this process acts."""
        self._live = live

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        problems = find_problems(
            informer_ages_s=self._ages(), oldest_pass_s=self._metrics.oldest_pass_s()
        )
        if self._is_api_away():
            problems = []
        answer: dict[str, Any] = {
            "status": "failing" if problems else "ok",
            "role": "standby" if self._live is None else "active",
            "problems": problems,
        }
        return web.json_response(answer, status=503 if problems else 200)

    async def _readyz(self, _: web.Request) -> web.Response:
        """Answer as a standby, too: the controller takes over, and this process follows it."""
        return web.json_response({"role": "standby" if self._live is None else "active"})

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        self._refresh()
        for kind, age_s in self._ages().items():
            self._metrics.informer_age_s.labels(kind).set(age_s)
        text = generate_latest(self._metrics.registry)
        return web.Response(body=text, headers={"Content-Type": METRICS_TYPE})

    def _ages(self) -> dict[str, float]:
        if self._live is None:
            return {}
        return {
            kind.kind: informer.age_s
            for kind, informer in self._live.informers.items()
            if informer.is_synced
        }
