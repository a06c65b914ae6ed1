"""The controller's ports: sessions of brokers on one, HTTP for people and tools on the other.

`/session` is authenticated by the cluster's secret; the others only show: `/healthz`, `/readyz`,
`/metrics`, `/status`, `/status/topics/TOPIC` (every partition), `/explain` (the newest decisions)
and `/explain/TOPIC/PARTITION` (why it has this leader). `/` lists them.
"""

import asyncio
import os
from typing import TYPE_CHECKING, Final

from aiohttp import web

from fairlead_controller.controller import Controller
from fairlead_controller.decision_journal import explain_partition
from fairlead_controller.declarations import Declarations
from fairlead_controller.loop_lag import LoopLag
from fairlead_controller.session_server import SessionServer
from fairlead_controller.status import build_partitions_status, build_status, build_topic_status
from fairlead_model.cluster import TopicImage
from fairlead_model.session_protocol import SESSION_PATH

if TYPE_CHECKING:
    from fairlead_controller.local_metrics import LocalMetrics

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
INDEX: Final = """The controller of a Fairlead cluster.

/status                     brokers, topics, and how well they are
/status/topics/TOPIC        leader, in-sync and eligible replicas of each partition
/explain                    the newest decisions, in sentences
/explain/TOPIC/PARTITION    why this partition has this leader, or waits for one
/healthz, /readyz           200 while it decides
/metrics                    for Prometheus
"""


class ControllerServer:
    """Both ports of one controller."""

    def __init__(
        self, controller: Controller, declarations: Declarations, *, secret: bytes
    ) -> None:
        self.sessions = SessionServer(controller, secret)
        self.lag = LoopLag()
        self.session_port = 0
        self.http_port = 0
        self._controller = controller
        self._declarations = declarations
        self._runners: list[web.AppRunner] = []
        self._metrics_page: LocalMetrics | None = None

    async def start(self, *, host: str, session_port: int, http_port: int) -> None:
        """Listen; port 0 takes a free one. OSError if a port is taken."""
        sessions = web.Application()
        sessions.router.add_get(SESSION_PATH, self.sessions.serve)
        self.session_port = await self._listen(sessions, host, session_port)
        pages = web.Application()
        pages.router.add_get("/", self._index)
        pages.router.add_get("/healthz", self._healthz)
        pages.router.add_get("/readyz", self._healthz)
        pages.router.add_get("/metrics", self._metrics)
        pages.router.add_get("/status", self._status)
        pages.router.add_get("/status/topics/{topic}", self._topic)
        pages.router.add_get("/explain", self._journal)
        pages.router.add_get("/explain/{topic}/{partition:[0-9]+}", self._explain)
        self.http_port = await self._listen(pages, host, http_port)

    async def stop(self) -> None:
        """End all sessions and stop listening."""
        await self.sessions.close()
        runners, self._runners = self._runners, []
        for runner in runners:
            await runner.cleanup()

    async def _listen(self, application: web.Application, host: str, port: int) -> int:
        runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=1.0
        )
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, host, port)
        await site.start()
        address = runner.addresses[0]
        return int(address[1])

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(text=INDEX)

    async def _healthz(self, request: web.Request) -> web.Response:
        """Also whether it is ready: it listens only once it reigns."""
        epoch = self._controller.committed.controller_epoch
        return web.json_response({"status": "ok", "controllerEpoch": epoch})

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._metrics_page is None:
            # Most controllers on laptops are never scraped, and the import takes a while.
            from fairlead_controller.local_metrics import LocalMetrics

            self._metrics_page = LocalMetrics(self._controller, self.sessions, self.lag)
        text = await self._metrics_page.text()
        return web.Response(body=text, headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def _status(self, request: web.Request) -> web.Response:
        state = self._controller.committed
        status = await asyncio.to_thread(
            build_status, state, pid=os.getpid(), declarations=self._declarations.status()
        )
        return web.json_response(status)

    async def _topic(self, request: web.Request) -> web.Response:
        topic = self._find_topic(request)
        status = build_topic_status(topic)
        return web.json_response(status | {"partitionList": build_partitions_status(topic)})

    async def _journal(self, request: web.Request) -> web.Response:
        return web.json_response({"decisions": self._controller.journal.sentences()})

    async def _explain(self, request: web.Request) -> web.Response:
        topic = self._find_topic(request)
        index = int(request.match_info["partition"])
        if index >= len(topic.partitions):
            raise web.HTTPNotFound(text=f"topic {topic.name!r} has no partition {index}")
        moves = list(self._controller.journal.moves_of(topic.topic_id, index))
        explanation = explain_partition(self._controller.committed, topic, index, moves)
        return web.json_response(explanation)

    def _find_topic(self, request: web.Request) -> TopicImage:
        name = request.match_info["topic"]
        topic = self._controller.committed.image.topic(name)
        if topic is None:
            raise web.HTTPNotFound(text=f"there is no topic {name!r}")
        return topic
