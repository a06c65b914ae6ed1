"""AlterClientQuotas, decided by the controller's own code, and who is held back by it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

import msgpack
import pytest

from fairlead_controller.decisions.decide import decide
from fairlead_controller.decisions.security.mutation_quota import MutationQuotas
from fairlead_controller.decisions.state import CountersChanged, initial_state
from fairlead_controller.sessions.call_parsing import parse_call
from fairlead_model.cluster import ClientQuotaChanged, ClusterDelta
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages import (
    alter_client_quotas,
    create_partitions,
    create_topics,
    delete_topics,
)

if TYPE_CHECKING:
    from collections.abc import Callable

INVALID = ErrorCode.INVALID_REQUEST
METHODS = ("alter_client_quotas", "create_topics", "create_partitions", "delete_topics")
ANONYMOUS_USER = (("user", "ANONYMOUS"),)


def deciding(stage: Any, method: str, mutations: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What a controller does with a call: read it, decide, and publish before it answers."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        sent = msgpack.unpackb(msgpack.packb(body), strict_map_key=False)
        event = parse_call(method, sent, broker_id=1, broker_epoch=1)
        state = initial_state(stage.image, controller_epoch=1, counters=CountersChanged(1, 0))
        allowance = mutations.allowance(state.image, event, 0)
        decision = decide(state, event, now_ms=0, random=random.Random(1), allowance=allowance)
        delta = ClusterDelta(cast("Any", decision.changes))
        stage.image = stage.image.apply(delta)
        stage.broker.publish(delta, stage.image)
        reply = msgpack.unpackb(msgpack.packb(decision.reply), strict_map_key=False)
        assert isinstance(reply, dict)
        return reply

    return answer


@pytest.fixture
def stage(stage: Any) -> Any:
    mutations = MutationQuotas()
    for method in METHODS:
        stage.controller.script[method] = deciding(stage, method, mutations)
    return stage


def alter(
    stage: Any, *entries: tuple[Any, list[Any]], version: int = 1, validate_only: bool = False
) -> list[tuple[int, Any]]:
    """Codes and entities of the answer."""
    request = alter_client_quotas.AlterClientQuotasRequest(
        [
            alter_client_quotas.RequestEntryData(
                [alter_client_quotas.RequestEntityData(*part) for part in entity],
                [alter_client_quotas.OpData(*op) for op in ops],
            )
            for entity, ops in entries
        ],
        validate_only,
    )
    return [
        (entry.error_code, tuple((part.entity_type, part.entity_name) for part in entry.entity))
        for entry in stage.ask(request, version).entries
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_hold_once_the_answer_is_here(stage: Any, version: int) -> None:
    pair = (("client-id", None), ("user", "alice"))
    ops = [("producer_byte_rate", 1024.0, False), ("consumer_byte_rate", 0.0, True)]
    assert alter(stage, (pair, ops), version=version) == [(0, pair)]
    stored = (("user", "alice"), ("client-id", None))
    assert dict(stage.broker.image.client_quotas) == {stored: {"producer_byte_rate": 1024.0}}
    meters = stage.broker.client_quotas.meters_of("alice", "any", 0)
    assert meters.produce.limit == 1024
    assert alter(stage, (pair, [("producer_byte_rate", 0.0, True)]), version=version) == [(0, pair)]
    assert not stage.broker.client_quotas.binds_clients


def test_each_entity_is_judged_by_itself_and_answered_in_its_place(stage: Any) -> None:
    entries = [
        ((("user", ""),), [("request_percentage", 1.0, False)]),
        ((("user", "a"),), [("request_percentage", 1.0, False)]),
        ((("user", "b"),), [("request_percentage", 1.0, False), ("x" * 101, 1.0, False)]),
        ((("group", "a"),), []),
        ((("ip", "10.0.0.1"),), [("connection_creation_rate", 1.5, False)]),
        ((("user", "c"),), [("request_percentage", 1.0, False)] * 2),
        ((("client-id", "c"),), [("controller_mutation_rate", 0.5, False)]),
    ]
    answers = alter(stage, *entries)
    assert [code for code, _ in answers] == [INVALID, 0, INVALID, INVALID, INVALID, INVALID, 0]
    assert [entity for _, entity in answers] == [entity for entity, _ in entries]
    assert set(stage.broker.image.client_quotas) == {(("user", "a"),), (("client-id", "c"),)}


def test_to_validate_changes_nothing(stage: Any) -> None:
    entry = ((("user", "a"),), [("request_percentage", 1.0, False)])
    assert alter(stage, entry, validate_only=True) == [(0, entry[0])]
    assert not stage.broker.image.client_quotas


def test_without_a_controller_every_entity_says_so(stage: Any) -> None:
    stage.controller.script.clear()
    entry = ((("user", "a"),), [("request_percentage", 1.0, False)])
    ((code, entity),) = alter(stage, entry)
    assert (code, entity) == (ErrorCode.REQUEST_TIMED_OUT, entry[0])


def create(stage: Any, version: int, **counts: int) -> tuple[list[int], int]:
    topics = [create_topics.CreatableTopic(name, count, 1) for name, count in counts.items()]
    reply = stage.ask(create_topics.CreateTopicsRequest(topics, 5000), version)
    return [topic.error_code for topic in reply.topics], reply.throttle_time_ms


def grow(stage: Any, version: int, name: str, count: int) -> tuple[list[int], int]:
    topics = [create_partitions.CreatePartitionsTopic(name, count, None)]
    reply = stage.ask(create_partitions.CreatePartitionsRequest(topics, 5000), version)
    return [result.error_code for result in reply.results], reply.throttle_time_ms


def delete(stage: Any, version: int, name: str) -> tuple[list[int], int]:
    request = delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=5000)
    reply = stage.ask(request, version)
    return [response.error_code for response in reply.responses], reply.throttle_time_ms


def test_mutations_above_the_quota_are_refused_where_clients_understand_it(stage: Any) -> None:
    stage.publish(ClientQuotaChanged(ANONYMOUS_USER, {"controller_mutation_rate": 2.0}))
    refused = [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert create(stage, 6, a=24) == ([0], 0)
    assert create(stage, 6, b=1) == (refused, 1000)
    assert grow(stage, 3, "a", 25) == (refused, 1000)
    assert delete(stage, 5, "a") == (refused, 1000)
    assert set(stage.image.names) == {"a"}


def test_older_clients_have_it_done_and_wait(stage: Any) -> None:
    stage.publish(ClientQuotaChanged(ANONYMOUS_USER, {"controller_mutation_rate": 2.0}))
    assert create(stage, 5, a=24) == ([0], 1000)
    assert grow(stage, 2, "a", 25) == ([0], 1500)
    assert delete(stage, 4, "a") == ([0], 14_000)
    assert not set(stage.image.names)


def test_without_a_quota_the_controller_is_told_nothing_of_who_asks(stage: Any) -> None:
    assert create(stage, 7, a=500) == ([0], 0)
    stage.publish(ClientQuotaChanged((("user", "bob"),), {"controller_mutation_rate": 1.0}))
    assert create(stage, 7, b=500) == ([0], 0)
    assert [body["asker"] for method, body in stage.controller.calls if "topics" in body] == [
        None,
        None,
    ]
