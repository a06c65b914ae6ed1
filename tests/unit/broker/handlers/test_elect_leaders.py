from typing import Any

import pytest

from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions


def elected(body: dict[str, Any]) -> dict[str, Any]:
    wanted = body["partitions"]
    if wanted is None:
        wanted = [{"topic": "all", "index": 0}]
    return {
        "partitions": [
            {**each, "error_code": 84 if each["index"] else 0, "error_message": "why"}
            for each in wanted
        ]
    }


def request(*topics: tuple[str, list[int]], kind: int = 0) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[TopicPartitions(topic=name, partitions=each) for name, each in topics],
        timeout_ms=5000,
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elections_are_the_controllers(stage: Any, version: int) -> None:
    stage.controller.script["elect_leaders"] = elected
    answer = stage.ask(request(("t", [0, 1]), ("u", [2])), version)
    ((method, body),) = stage.controller.calls
    assert method == "elect_leaders"
    assert body["election_type"] == 0
    assert body["partitions"] == [
        {"topic": "t", "index": 0},
        {"topic": "t", "index": 1},
        {"topic": "u", "index": 2},
    ]
    slots = {
        (topic.topic, each.partition_id): each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }
    assert slots == {
        ("t", 0): 0,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("u", 2): ErrorCode.ELECTION_NOT_NEEDED,
    }


def test_all_partitions_may_be_meant(stage: Any) -> None:
    stage.controller.script["elect_leaders"] = elected
    everything = ElectLeadersRequest(election_type=1, topic_partitions=None, timeout_ms=5000)
    (result,) = stage.ask(everything, 2).replica_election_results
    assert result.topic == "all"
    assert stage.controller.calls[0][1] == {"partitions": None, "election_type": 1}


@pytest.mark.parametrize("version", [0, 2])
def test_without_a_controller_every_version_says_so_in_its_way(stage: Any, version: int) -> None:
    def refuse(body: dict[str, Any]) -> dict[str, Any]:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller")

    stage.controller.script["elect_leaders"] = refuse
    answer = stage.ask(request(("t", [0])), version)
    assert answer.error_code == (ErrorCode.REQUEST_TIMED_OUT if version else ErrorCode.NONE)
    ((slot,),) = (topic.partition_result for topic in answer.replica_election_results)
    assert (slot.error_code, slot.error_message) == (ErrorCode.REQUEST_TIMED_OUT, "no controller")


@pytest.mark.parametrize("kind", [2, 7, -1])
def test_an_unknown_election_type_is_refused_for_each_partition_it_names(
    stage: Any, kind: int
) -> None:
    """As in Kafka, whose clients may look at either error."""
    answer = stage.ask(request(("t", [0, 1]), ("u", [2]), kind=kind), 2)
    assert stage.controller.calls == []
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    why = f"Unknown election type {kind}"
    assert [
        (topic.topic, each.partition_id, each.error_code, each.error_message)
        for topic in answer.replica_election_results
        for each in topic.partition_result
    ] == [
        (topic, index, ErrorCode.INVALID_REQUEST, why)
        for topic, index in (("t", 0), ("t", 1), ("u", 2))
    ]
    everything = ElectLeadersRequest(election_type=kind, topic_partitions=None, timeout_ms=5000)
    answer = stage.ask(everything, 2)
    assert (answer.error_code, answer.replica_election_results) == (ErrorCode.INVALID_REQUEST, [])
