"""Answers about one cluster, the same on the socket of the pod and on the port for people."""

import asyncio
import os
from typing import Any

from aiohttp import web

from fairlead_controller.candidate.reign import Government
from fairlead_controller.decision_journal import explain_partition
from fairlead_controller.status import build_partitions_status, build_status, build_topic_status
from fairlead_model.cluster import TopicImage
from fairlead_model.refusals import RefusalCode, RefusedError


async def status_of(government: Government) -> dict[str, Any]:
    """Give brokers, topics and counts; made in a thread because it walks all partitions."""
    state = government.controller.committed
    status = await asyncio.to_thread(build_status, state, pid=os.getpid(), declarations={})
    return status | {
        "draining": sorted(state.draining),
        "refusedBrokers": {str(key): why for key, why in government.sessions.refused.items()},
        "storeAvailable": government.store.is_available,
        "intents": len(state.intents),
    }


def topic_page(government: Government, request: web.Request) -> dict[str, Any]:
    """Give one topic with each of its partitions."""
    topic = find_topic(government, request)
    return build_topic_status(topic) | {"partitionList": build_partitions_status(topic)}


def explain(government: Government, request: web.Request) -> dict[str, Any]:
    """Say why a partition has its leader."""
    topic = find_topic(government, request)
    index = int(request.match_info["partition"])
    if index >= len(topic.partitions):
        raise RefusedError(
            RefusalCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name!r} has no partition {index}"
        )
    controller = government.controller
    moves = list(controller.journal.moves_of(topic.topic_id, index))
    return explain_partition(controller.committed, topic, index, moves)


def find_topic(government: Government, request: web.Request) -> TopicImage:
    """Find the topic that a request names; RefusedError if there is none."""
    name = request.match_info["topic"]
    topic = government.controller.committed.image.topic(name)
    if topic is None:
        raise RefusedError(RefusalCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic
