"""Executes a plan and reports its progress. The controller's queue of moves is durable."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.cluster_state import read_cluster
from fairlead_cli.client.reassignment import alter_many, list_all_reassignments
from fairlead_cli.errors import CliError, NoAnswerError
from fairlead_controller.decisions.balance.plan_document import changes_since
from fairlead_controller.decisions.balance.plan_progress import MoveState, state_of_move

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_cli.client.reassignment import Refusal

PARTITIONS_A_REQUEST = 1000
POLL_S = 1.0
UNHEARD_MAX_S = 30.0
NAMED_MAX = 10
NOT_MOVING = "NO_REASSIGNMENT_IN_PROGRESS"
NOT_NEEDED = "ELECTION_NOT_NEEDED"

Targets = dict[tuple[str, int], "list[int] | None"]


def require_unchanged(document: Mapping[str, Any], addresses: str) -> None:
    """Raise CliError that names what has changed since the plan was made."""
    reading = read_cluster(addresses)
    changes = changes_since(dict(document), reading.cluster_id, reading.state, reading.waiting)
    if changes:
        more = [f"and {len(changes) - NAMED_MAX} more"] if len(changes) > NAMED_MAX else []
        lines = "\n".join(f"  {each}" for each in [*changes[:NAMED_MAX], *more])
        raise CliError(
            f"plan {document['id']} is stale, and nothing was moved:\n{lines}",
            hint=f"Make another:  fairlead rebalance{cluster_arguments()}",
        )


def start(document: Mapping[str, Any], addresses: str) -> dict[tuple[str, int], Refusal]:
    """Send all moves to the controller, which does few at a time; return what it refuses."""
    return _ask(
        addresses,
        {(each["topic"], each["partition"]): each["after"] for each in document["moves"]},
    )


def cancel(document: Mapping[str, Any], addresses: str) -> dict[tuple[str, int], Refusal]:
    """Cancel the moves that run or wait; finished ones stay. Return what cannot be cancelled."""
    ongoing = list_all_reassignments(addresses)
    targets: Targets = {}
    for each in document["moves"]:
        at = (each["topic"], each["partition"])
        moving = ongoing.get(at)
        if moving is not None and target_of(moving.replicas, moving.removing) == each["after"]:
            targets[at] = None
    refused = _ask(addresses, targets)
    return {at: refusal for at, refusal in refused.items() if refusal.error != NOT_MOVING}


def _ask(addresses: str, targets: Targets) -> dict[tuple[str, int], Refusal]:
    refused: dict[tuple[str, int], Refusal] = {}
    items = sorted(targets.items())
    for begin in range(0, len(items), PARTITIONS_A_REQUEST):
        refused |= alter_many(addresses, dict(items[begin : begin + PARTITIONS_A_REQUEST]))
    return refused


def target_of(replicas: list[int], removing: list[int]) -> list[int]:
    """Return the target replicas of a moving partition."""
    return [each for each in replicas if each not in removing]


def read_progress(document: Mapping[str, Any], addresses: str) -> dict[str, Any]:
    """Return what has moved, what moves or waits, and what has moved elsewhere or not at all."""
    ongoing = list_all_reassignments(addresses)
    image = read_cluster(addresses).state.image
    rows = []
    for each in document["moves"]:
        at = (each["topic"], each["partition"])
        moving = ongoing.get(at)
        target = None if moving is None else target_of(moving.replicas, moving.removing)
        state = state_of_move(each, image, target)
        rows.append(
            {name: each[name] for name in ("topic", "partition", "bytes")} | {"state": state}
        )
    count = {name: sum(row["state"] == name for row in rows) for name in MoveState}
    return {
        "id": document["id"],
        "partitions": len(rows),
        "done": count[MoveState.DONE],
        "moving": count[MoveState.MOVING],
        "notMoved": count[MoveState.NOT_MOVED],
        "changedSince": count[MoveState.CHANGED],
        "bytes": sum(row["bytes"] for row in rows),
        "bytesDone": sum(row["bytes"] for row in rows if row["state"] == MoveState.DONE),
        "rows": rows,
    }


def wait(document: Mapping[str, Any], addresses: str, timeout_s: float) -> dict[str, Any]:
    """Return the progress once no move of the plan is left, or the time is up.

    Brokers may die and come back meanwhile. NoAnswerError if none has answered for half a minute.
    The controller reports the moves, and a broker, which learns of them later, the replicas. So
    partitions that seem to have moved elsewhere or not at all are checked twice.
    """
    deadline = time.monotonic() + timeout_s
    heard_s = time.monotonic()
    before: dict[str, Any] | None = None
    while True:
        try:
            progress = read_progress(document, addresses)
            heard_s = time.monotonic()
            is_sure = progress["done"] == progress["partitions"] or progress == before
            if (is_sure and not progress["moving"]) or heard_s > deadline:
                return progress
            before = progress
        except NoAnswerError:
            if time.monotonic() > min(deadline, heard_s + UNHEARD_MAX_S):
                raise
        time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))


def elect_preferred(document: Mapping[str, Any], addresses: str) -> int:
    """Make the first replicas of the plan leaders now, instead of some minutes later.

    Return how many of them do not lead yet, because they are not in sync or not up.
    """
    from confluent_kafka import ElectionType, TopicPartition

    from fairlead_cli.client.connection import ask_again, build_admin, wait_for

    image = read_cluster(addresses).state.image
    places = []
    for each in document["moves"]:
        record = image.partition(each["topic"], each["partition"])
        is_there = record is not None and list(record.replicas) == each["after"]
        if record is not None and is_there and record.leader != record.preferred_leader:
            places.append(TopicPartition(each["topic"], each["partition"]))
    if not places:
        return 0
    admin = build_admin(addresses)
    errors = ask_again(
        lambda: wait_for(
            admin.elect_leaders(ElectionType.PREFERRED, places), "cannot elect preferred leaders"
        )
    )
    return sum(error is not None and error.name() != NOT_NEEDED for error in errors.values())
