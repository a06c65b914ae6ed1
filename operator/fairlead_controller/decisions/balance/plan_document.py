"""A plan as JSON, with the id that approves it, and what has changed since it was made. Pure.

The id stands for what moves and for the metadata that this rests on: the cluster, its registered
brokers, and of each partition that moves its topic id, its replicas and its leader epoch. A leader
epoch rises when another broker leads, and when a replica goes.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead_controller.decisions.balance.facts import BalancePlan, Goal, Standing
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.ids import topic_id_text

VERSION = 1
ID_LENGTH = 12
BOUND_FIELDS = ("topic", "topicId", "partition", "leaderEpoch", "before", "after")


def build_plan_document(
    cluster_id: str, state: ControllerState, plan: BalancePlan, bytes_per_s: int | None
) -> dict[str, Any]:
    """Return the plan as JSON."""
    moves = []
    for move in plan.moves:
        topic = state.image.topic(move.topic)
        if topic is None:
            continue
        moves.append(
            {
                "topic": move.topic,
                "topicId": topic_id_text(topic.topic_id),
                "partition": move.index,
                "leaderEpoch": topic.partitions[move.index].leader_epoch,
                "before": list(move.before),
                "after": list(move.after),
                "bytes": move.bytes,
                "goal": str(move.goal),
            }
        )
    document = {
        "version": VERSION,
        "clusterId": cluster_id,
        "brokers": sorted(state.image.brokers),
        "moves": moves,
    }
    return {"id": plan_id(document), **document, **build_plan_summary(plan, bytes_per_s)}


def build_plan_summary(plan: BalancePlan, bytes_per_s: int | None) -> dict[str, Any]:
    """Return how much moves, how long that takes, and what is better afterwards."""
    duration_s = None if bytes_per_s is None else round(plan.duration_s(bytes_per_s), 1)
    return {
        "partitionsMoved": sum(bool(move.adding) for move in plan.moves),
        "leadersOrdered": sum(move.before[0] != move.after[0] for move in plan.moves),
        "bytes": plan.bytes,
        "bytesNeeded": plan.bytes_needed,
        "durationS": duration_s,
        "bytesPerSecond": bytes_per_s,
        "goals": [
            {
                "goal": str(goal),
                "before": round(plan.before.distances[goal], 1),
                "after": round(plan.after.distances[goal], 1),
            }
            for goal in Goal
        ],
        "shares": shares(plan.before, plan.after),
    }


def shares(before: Standing, after: Standing) -> list[dict[str, Any]]:
    """Return what each broker has before and after."""
    names = {
        "replicas": "replicas",
        "leaders": "leaders",
        "bytes": "bytes",
        "bytesIn": "bytes_in",
        "bytesOut": "bytes_out",
    }
    return [
        {
            "broker": broker_id,
            **{
                name: [
                    round(getattr(before.shares[broker_id], field)),
                    round(getattr(after.shares[broker_id], field)),
                ]
                for name, field in names.items()
            },
        }
        for broker_id in sorted(before.shares)
    ]


def plan_id(document: Mapping[str, Any]) -> str:
    """Return the id that a plan has by what it says."""
    bound = {
        "clusterId": document["clusterId"],
        "brokers": document["brokers"],
        "moves": [{name: move[name] for name in BOUND_FIELDS} for move in document["moves"]],
    }
    text = json.dumps(bound, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def changes_since(
    document: Mapping[str, Any],
    cluster_id: str,
    state: ControllerState,
    waiting: Iterable[tuple[str, int]],
) -> list[str]:
    """Say what is not as the plan has it; nothing if it can be carried out as it is."""
    if document["clusterId"] != cluster_id:
        return [f"it is of cluster {document['clusterId']}, this is cluster {cluster_id}"]
    found = []
    then, now = set(document["brokers"]), set(state.image.brokers)
    for each in sorted(then - now):
        found.append(f"broker {each} is not in service any more")
    for each in sorted(now - then):
        found.append(f"broker {each} has come")
    moving = set(waiting)
    for move in document["moves"]:
        name, index = move["topic"], move["partition"]
        topic = state.image.topic(name)
        if topic is None or topic_id_text(topic.topic_id) != move["topicId"]:
            found.append(f"topic {name} is gone, or another one")
            continue
        record = state.image.partition(name, index)
        if record is None:
            # Metadata of before the topic grew was put back.
            found.append(f"{name}-{index} is not there any more")
        elif (name, index) in moving:
            found.append(f"{name}-{index} is being reassigned")
        elif list(record.replicas) != move["before"]:
            found.append(
                f"{name}-{index} has replicas {listed(record.replicas)} instead of "
                f"{listed(move['before'])}"
            )
        elif record.leader_epoch != move["leaderEpoch"]:
            found.append(
                f"{name}-{index} has leader epoch {record.leader_epoch} instead of "
                f"{move['leaderEpoch']}: broker {record.leader} leads now"
            )
    return found


def listed(brokers: Iterable[int]) -> str:
    """Return ids as people write them."""
    return ", ".join(map(str, brokers))
