"""Answers about one cluster, for the socket of the pod."""

import asyncio
import os
from collections.abc import Collection
from typing import Any

from aiohttp import web

from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.what_if import forecast_loss
from fairlead_controller.kubernetes.reign import ReignParts
from fairlead_controller.views.decision_journal import explain_partition
from fairlead_controller.views.status import (
    build_partitions_status,
    build_status,
    build_topic_status,
)
from fairlead_model.cluster import TopicImage
from fairlead_model.ids import BrokerId
from fairlead_model.session.refusals import RefusalCode, RefusedError


async def status_of(parts: ReignParts) -> dict[str, Any]:
    """Return brokers, topics and counts; run in a thread, because it visits all partitions."""
    state = parts.controller.committed
    status = await asyncio.to_thread(build_status, state, pid=os.getpid(), declarations={})
    return status | {
        "draining": sorted(state.draining),
        "refusedBrokers": {str(key): why for key, why in parts.sessions.refused.items()},
        "storeAvailable": parts.store.is_available,
        "intents": len(state.intents),
    }


def topic_page(parts: ReignParts, request: web.Request) -> dict[str, Any]:
    """Return one topic with each of its partitions."""
    topic = find_topic(parts, request)
    return build_topic_status(topic) | {"partitionList": build_partitions_status(topic)}


def explain(parts: ReignParts, request: web.Request) -> dict[str, Any]:
    """Say why a partition has its leader."""
    topic = find_topic(parts, request)
    index = int(request.match_info["partition"])
    if index >= len(topic.partitions):
        raise RefusedError(
            RefusalCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name!r} has no partition {index}"
        )
    controller = parts.controller
    moves = list(controller.journal.moves_of(topic.topic_id, index))
    return explain_partition(controller.committed, topic, index, moves)


def find_topic(parts: ReignParts, request: web.Request) -> TopicImage:
    """Find the topic that a request names; raise RefusedError if there is none."""
    name = request.match_info["topic"]
    topic = parts.controller.committed.image.topic(name)
    if topic is None:
        raise RefusedError(RefusalCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def loss_page(state: ControllerState, lost: Collection[BrokerId]) -> dict[str, int]:
    """Count what the loss of some brokers would do to partitions (`decisions.what_if`)."""
    partitions = forecast_loss(state, lost).partitions
    return {
        "leadersMove": sum(each.changes_leader and not each.loses_leader for each in partitions),
        "withoutLeader": sum(each.loses_leader for each in partitions),
        "belowMinimum": sum(each.falls_below_minimum for each in partitions),
        "lastCopies": sum(each.loses_last_copy for each in partitions),
    }
