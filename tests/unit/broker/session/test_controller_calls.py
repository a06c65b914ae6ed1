"""What clients ask of a controller that goes away before it answers is asked of the next one."""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead_broker.session.controller_session import CallLostError
from fairlead_model.session.calls import ElectionType
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from fairlead_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fairlead_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

GONE = [
    pytest.param(CallLostError(), id="lost"),
    pytest.param(KafkaError(ErrorCode.NOT_CONTROLLER, "it is stopping"), id="stopping"),
]


def answer_after(
    *failures: KafkaError, answer: Callable[[dict[str, Any]], dict[str, Any]]
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A controller that fails so often before one answers."""
    left = list(failures)

    def call(body: dict[str, Any]) -> dict[str, Any]:
        if left:
            raise left.pop(0)
        return answer(body)

    return call


def accept(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "partitions": [
            {**each, "error_code": 0, "error_message": None} for each in body["partitions"]
        ]
    }


def reassign(replicas: list[int] | None, timeout_ms: int = 5000) -> Any:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, topics=[ReassignableTopic(name="t", partitions=[partition])]
    )


@pytest.mark.parametrize("failure", GONE)
def test_a_reassignment_is_asked_again(stage: Any, failure: KafkaError) -> None:
    stage.controller.script["alter_partition_reassignments"] = answer_after(
        failure, failure, answer=accept
    )
    answer = stage.ask(reassign([1, 2]), 0)
    assert answer.error_code == ErrorCode.NONE
    assert [each.partitions[0].error_code for each in answer.responses] == [ErrorCode.NONE]
    bodies = [body for _, body in stage.controller.calls]
    assert len(bodies) == 3
    assert bodies[0] == bodies[1] == bodies[2]


@pytest.mark.parametrize("failure", GONE)
def test_it_is_not_asked_again_when_the_clients_time_is_over(
    stage: Any, failure: KafkaError
) -> None:
    stage.controller.script["alter_partition_reassignments"] = answer_after(
        *[failure] * 1000, answer=accept
    )
    answer = stage.ask(reassign([1, 2], timeout_ms=1000), 0)
    assert answer.error_code == failure.code
    assert 1 < len(stage.controller.calls) <= 21


@pytest.mark.parametrize("failure", GONE)
@pytest.mark.parametrize(
    ("request_", "version"),
    [
        pytest.param(reassign(None), 0, id="cancellation"),
        pytest.param(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7, id="creation"),
        pytest.param(
            ElectLeadersRequest(
                election_type=ElectionType.UNCLEAN,
                topic_partitions=[TopicPartitions(topic="t", partitions=[0])],
            ),
            2,
            id="unclean-election",
        ),
    ],
)
def test_what_would_be_answered_otherwise_is_not(
    stage: Any, request_: Any, version: int, failure: KafkaError
) -> None:
    def fail(_body: dict[str, Any]) -> dict[str, Any]:
        raise failure

    methods = ("alter_partition_reassignments", "create_topics", "elect_leaders")
    stage.controller.script |= dict.fromkeys(methods, fail)
    stage.ask(request_, version)
    assert len(stage.controller.calls) == 1


def test_a_preferred_election_is_asked_again(stage: Any) -> None:
    stage.controller.script["elect_leaders"] = answer_after(CallLostError(), answer=accept)
    request = ElectLeadersRequest(
        election_type=ElectionType.PREFERRED,
        topic_partitions=[TopicPartitions(topic="t", partitions=[0])],
        timeout_ms=5000,
    )
    (result,) = stage.ask(request, 2).replica_election_results
    assert [each.error_code for each in result.partition_result] == [ErrorCode.NONE]
    assert len(stage.controller.calls) == 2


def test_a_call_that_ends_session_after_session_is_given_up(stage: Any) -> None:
    """It may be the reason itself."""
    stage.controller.script["alter_partition_reassignments"] = answer_after(
        *[CallLostError()] * 50, answer=accept
    )
    answer = stage.ask(reassign([1, 2]), 0)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert len(stage.controller.calls) == 3
