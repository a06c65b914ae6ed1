"""The targets of a drill.

`leader:TOPIC/P`, `follower:TOPIC/P`, `broker:ID[,ID…]`, `rack:NAME`, `all`, `controller`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.errors import CliError
from fairlead_cli.options import INT32_MAX, parse_number, parse_numbers

if TYPE_CHECKING:
    from typing import Any

FORMS = (
    "leader:TOPIC/PARTITION, follower:TOPIC/PARTITION, broker:ID[,ID…], rack:NAME, all, controller"
)


class NotResolvedError(CliError):
    """The partition has no such replica at this moment."""


class TargetKind(StrEnum):
    """The kinds of targets."""

    LEADER = "leader"
    FOLLOWER = "follower"
    BROKER = "broker"
    CONTROLLER = "controller"
    RACK = "rack"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Target:
    """One target. Leaders and followers are looked up before each fault."""

    kind: TargetKind
    topic: str = ""
    partition: int = -1
    broker_id: int = -1
    broker_ids: tuple[int, ...] = ()
    """For several brokers; `broker_id` is the first of them."""
    rack: str = ""

    def __str__(self) -> str:
        match self.kind:
            case TargetKind.CONTROLLER:
                return "controller"
            case TargetKind.BROKER:
                return "broker:" + ",".join(map(str, self.broker_ids or (self.broker_id,)))
            case TargetKind.RACK:
                return f"rack:{self.rack}"
            case TargetKind.ALL:
                return "all"
            case _:
                return f"{self.kind}:{self.topic}/{self.partition}"


def parse_target(text: str) -> Target:
    """Parse a command line argument; click.BadParameter names the valid forms."""
    kind, _, rest = text.partition(":")
    topic, slash, partition = rest.rpartition("/")
    if text == "controller":
        return Target(TargetKind.CONTROLLER)
    if text == "all":
        return Target(TargetKind.ALL)
    if kind == "rack" and rest:
        return Target(TargetKind.RACK, rack=rest)
    ids = parse_numbers(rest, INT32_MAX)
    if kind == "broker" and ids is not None:
        numbers = tuple(sorted(ids))
        several = numbers if len(numbers) > 1 else ()
        return Target(TargetKind.BROKER, broker_id=numbers[0], broker_ids=several)
    index = parse_number(partition, INT32_MAX)
    if kind in ("leader", "follower") and slash and topic and index is not None:
        return Target(TargetKind(kind), topic=topic, partition=index)
    raise click.BadParameter(f"'{text}' is not {FORMS}", param_hint="--target")


def resolve_broker(target: Target, metadata: Any) -> int:
    """Return the present broker of a target, from librdkafka's metadata of its topic."""
    if target.kind is TargetKind.BROKER:
        return target.broker_id
    topic = metadata.topics.get(target.topic)
    partition = topic.partitions.get(target.partition) if topic is not None else None
    if partition is None:
        raise CliError(
            f"there is no partition {target.partition} of a topic '{target.topic}'",
            hint=f"See what there is:  fairlead topic list{cluster_arguments()}",
        )
    if target.kind is TargetKind.LEADER:
        if partition.leader < 0:
            raise NotResolvedError(f"{target.topic}/{target.partition} has no leader")
        return int(partition.leader)
    followers = [replica for replica in partition.replicas if replica != partition.leader]
    in_sync = [replica for replica in followers if replica in partition.isrs]
    if not in_sync:
        raise NotResolvedError(
            f"{target.topic}/{target.partition} has no in-sync follower",
            hint="Create it with a higher --replication-factor.",
        )
    return int(in_sync[0])
