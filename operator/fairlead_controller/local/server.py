"""The controller's ports: sessions of brokers on one, HTTP for people and tools on the other.

The cluster's secret protects `/session`; the other paths only show state (`controller_pages`).
"""

from typing import TYPE_CHECKING

from aiohttp import web

from fairlead_controller.controller import Controller
from fairlead_controller.metrics.loop_lag import LoopLag
from fairlead_controller.pages.controller_pages import ControllerPages, Reigning
from fairlead_controller.sessions.door import SessionDoor
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.sessions.session_tls import OwnSessionTls
from fairlead_controller.startup_topics import Declarations
from fairlead_model.configs.controller_configs import DEFAULT_TIMING, SessionTiming
from fairlead_model.session.session_protocol import SESSION_PATH
from fairlead_sockets.http_site import HTTP_KEEPALIVE_S, BoundedSite
from fairlead_sockets.listening import bound_port, open_listening_socket
from fairlead_tls.followed_certificate import FollowedPeer

if TYPE_CHECKING:
    from fairlead_controller.metrics.local_page import LocalMetrics


class ControllerServer:
    """Both ports of one controller."""

    def __init__(
        self,
        controller: Controller,
        declarations: Declarations,
        *,
        secret: bytes,
        timing: SessionTiming = DEFAULT_TIMING,
        certificate: FollowedPeer | None = None,
    ) -> None:
        """With a `certificate`, sessions use TLS."""
        self._certificate = certificate
        self.declarations = declarations
        self.sessions = SessionServer(controller, secret, timing=timing)
        self.lag = LoopLag()
        self.session_port = 0
        self.http_port = 0
        self._reign = Reigning(controller, declarations, self.sessions)
        self._door: SessionDoor | None = None
        self._runners: list[web.AppRunner] = []
        self._metrics_page: LocalMetrics | None = None

    async def start(self, *, host: str, session_port: int, http_port: int) -> None:
        """Listen; port 0 takes a free port. OSError if a port is taken."""
        sessions = web.Application()
        sessions.router.add_get(SESSION_PATH, self.sessions.serve)
        own = self._certificate
        self._door = SessionDoor(None if own is None else OwnSessionTls(own))
        runner = await self._set_up(sessions)
        _, self.session_port = await self._door.listen(runner, host, session_port)
        pages = ControllerPages(find_reign=lambda: self._reign, metrics=self._metrics)
        self.http_port = await self._listen(pages.build_application(), host, http_port)

    async def stop(self) -> None:
        """End all sessions and stop listening."""
        await self.sessions.close()
        if self._door is not None:
            await self._door.close()
        runners, self._runners = self._runners, []
        for runner in runners:
            await runner.cleanup()

    async def _metrics(self) -> bytes:
        if self._metrics_page is None:
            # Most controllers on laptops are never scraped, and the import takes a while.
            from fairlead_controller.metrics.local_page import LocalMetrics

            self._metrics_page = LocalMetrics(
                self._reign.controller, self.sessions, self.lag, self._certificate
            )
        return await self._metrics_page.text()

    async def _set_up(self, application: web.Application) -> web.AppRunner:
        runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=1.0,
            keepalive_timeout=HTTP_KEEPALIVE_S,
        )
        await runner.setup()
        self._runners.append(runner)
        return runner

    async def _listen(self, application: web.Application, host: str, port: int) -> int:
        runner = await self._set_up(application)
        listening = open_listening_socket(host, port)
        await BoundedSite(runner, listening).start()
        return bound_port(listening)
