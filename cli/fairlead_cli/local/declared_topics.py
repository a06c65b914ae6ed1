"""Wait until the topics of the manifests exist and have leaders, so that "ready" means usable."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from fairlead_cli.local.readiness import http_get

if TYPE_CHECKING:
    from fairlead_cli.local.cluster_file import ProcessEntry
    from fairlead_cli.local.reporter import Reporter

POLL_S = 0.02
TIMEOUT_S = 15.0


async def wait_for_declared_topics(controller: ProcessEntry, reporter: Reporter) -> None:
    """Ask the controller until all topics of the manifests are ready, or report the others."""
    deadline = time.monotonic() + TIMEOUT_S
    status: dict[str, Any] | None = None
    while time.monotonic() < deadline:
        status = await read_status(controller)
        if status is not None and not find_open_topics(status):
            break
        await asyncio.sleep(POLL_S)
    if status is None:
        reporter.warning(controller.name, "does not tell which topics there are")
        return
    for name in find_open_topics(status):
        reporter.warning(controller.name, f"topic {name} is not served yet")
    for problem in status["declaredTopics"]["problems"]:
        reporter.warning(controller.name, problem)


async def read_status(controller: ProcessEntry) -> dict[str, Any] | None:
    """Return the controller's view of the cluster; None if it does not answer."""
    reply = await http_get(controller.host, controller.http_port, "/status")
    if reply is None or reply[0] != 200:
        return None
    document = json.loads(reply[1])
    return document if isinstance(document, dict) else None


def find_open_topics(status: dict[str, Any]) -> list[str]:
    """Return declared topics that wait for brokers, or that have no leader."""
    waiting = list(status["declaredTopics"]["waiting"])
    leaderless = [
        topic["name"] for topic in status["topics"] if topic["resource"] and topic["offline"]
    ]
    return sorted({*waiting, *leaderless})
