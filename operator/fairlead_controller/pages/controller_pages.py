"""What a controller shows over HTTP, to people, probes and Prometheus.

`/healthz`, `/readyz` and `/metrics` answer everybody who reaches the port. `/status`,
`/status/topics/TOPIC` (every partition), `/explain` (the newest decisions) and
`/explain/TOPIC/PARTITION` (why it has this leader) show what a cluster holds and cost the
controller time, so they answer only this machine. `/` lists all pages. A process that is not the
controller says so.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from aiohttp import web

from fairlead_controller.controller import Controller
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.startup_topics import Declarations
from fairlead_controller.views.decision_journal import explain_partition
from fairlead_controller.views.status import (
    build_partitions_status,
    build_status,
    build_topic_status,
)
from fairlead_model.cluster import TopicImage
from fairlead_model.host_address import is_name_of_others, peer_address

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
INDEX: Final = """The controller of a Fairlead cluster.

On this machine, at its address 127.0.0.1:
/status                     brokers, topics, and how well they are
/status/topics/TOPIC        leader, in-sync and eligible replicas of each partition
/explain                    the newest decisions, in sentences
/explain/TOPIC/PARTITION    why this partition has this leader, or waits for one

From everywhere:
/healthz, /readyz           200 while it decides
/metrics                    for Prometheus
"""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Reigning:
    """The parts of a reign that pages show."""

    controller: Controller
    declarations: Declarations
    sessions: SessionServer


class ControllerPages:
    """The pages of one process."""

    def __init__(
        self,
        *,
        find_reign: Callable[[], Reigning | None],
        metrics: Callable[[], Awaitable[bytes]],
        describe: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """`find_reign` returns the present reign, or None.

        `describe` returns more facts about the process, for `/healthz` and `/status`.
        """
        self._find_reign = find_reign
        self._metrics = metrics
        self._describe = describe

    def build_application(self) -> web.Application:
        """Return the application for the HTTP port."""
        pages = web.Application()
        pages.router.add_get("/", self._index)
        pages.router.add_get("/healthz", self._healthz)
        pages.router.add_get("/readyz", self._healthz)
        pages.router.add_get("/metrics", self._metrics_page)
        pages.router.add_get("/status", _for_this_machine(self._status))
        pages.router.add_get("/status/topics/{topic}", _for_this_machine(self._topic))
        pages.router.add_get("/explain", _for_this_machine(self._journal))
        pages.router.add_get(
            "/explain/{topic}/{partition:[0-9]{1,10}}", _for_this_machine(self._explain)
        )
        return pages

    def _reign(self) -> Reigning:
        reign = self._find_reign()
        if reign is None:
            raise web.HTTPServiceUnavailable(
                text=json.dumps({"status": "standby"} | self._describe()),
                content_type="application/json",
            )
        return reign

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(text=INDEX)

    async def _healthz(self, request: web.Request) -> web.Response:
        """Answer both probes: a standby is healthy, too."""
        reign = self._find_reign()
        epoch = 0 if reign is None else reign.controller.committed.controller_epoch
        answer = {"status": "ok", "controllerEpoch": epoch}
        return web.json_response(answer | self._describe())

    async def _metrics_page(self, request: web.Request) -> web.Response:
        text = await self._metrics()
        return web.Response(body=text, headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def _status(self, request: web.Request) -> web.Response:
        reign = self._reign()
        status = await asyncio.to_thread(
            build_status,
            reign.controller.committed,
            pid=os.getpid(),
            declarations=reign.declarations.status(),
        )
        return web.json_response(status | self._describe())

    async def _topic(self, request: web.Request) -> web.Response:
        topic = self._find_topic(request)
        status = build_topic_status(topic)
        return web.json_response(status | {"partitionList": build_partitions_status(topic)})

    async def _journal(self, request: web.Request) -> web.Response:
        return web.json_response({"decisions": self._reign().controller.journal.sentences()})

    async def _explain(self, request: web.Request) -> web.Response:
        topic = self._find_topic(request)
        index = int(request.match_info["partition"])
        if index >= len(topic.partitions):
            raise web.HTTPNotFound(text=f"topic {topic.name!r} has no partition {index}")
        controller = self._reign().controller
        moves = list(controller.journal.moves_of(topic.topic_id, index))
        explanation = explain_partition(controller.committed, topic, index, moves)
        return web.json_response(explanation)

    def _find_topic(self, request: web.Request) -> TopicImage:
        name = request.match_info["topic"]
        topic = self._reign().controller.committed.image.topic(name)
        if topic is None:
            raise web.HTTPNotFound(text=f"there is no topic {name!r}")
        return topic


def _for_this_machine(handler: Handler) -> Handler:
    """Answer only clients that connected to a loopback address, which only this machine can do.

    A page of another site in a browser on this machine is refused by the name that it comes with.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the connection closed before its request was handled")
        host, port = transport.get_extra_info("sockname")[:2]
        if not ip_address(peer_address(host)).is_loopback:
            raise web.HTTPForbidden(
                text="this page is only for the controller's own machine. There:\n"
                f"  curl http://127.0.0.1:{port}{request.path_qs}\n"
            )
        if is_name_of_others(request.headers.get("Host", "")):
            raise web.HTTPForbidden(text="ask for this page by 127.0.0.1 or localhost\n")
        return await handler(request)

    return answer
