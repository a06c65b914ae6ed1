from typing import Any

import pytest

from fairlead_controller.call_parsing import parse_call
from fairlead_controller.events import (
    AllocateProducerIds,
    AlterConfigs,
    ConfirmDeletions,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ShutDownBroker,
)
from fairlead_model.codec import CodecError

TOPIC = {
    "name": "t",
    "partitions": -1,
    "replication_factor": 1,
    "assignments": {0: [1, 2]},
    "configs": {"a": None, "b": "c"},
}
CREATE = {
    "topics": [TOPIC],
    "validate_only": False,
    "default_partitions": 1,
    "default_replication_factor": 1,
}
DELETE = {"topics": [{"name": None, "topic_id": b"x" * 16}, {"name": "t", "topic_id": bytes(16)}]}
GROW = {"topics": [{"name": "t", "count": 3, "assignments": [[1]]}], "validate_only": True}
ALTER = {
    "resources": [
        {
            "resource_type": 2,
            "name": "t",
            "alterations": [{"name": "a", "operation": 1, "value": None}],
        }
    ],
    "validate_only": False,
    "incremental": True,
}


def parse(method: object, body: object) -> Any:
    return parse_call(method, body, broker_id=7, broker_epoch=9)


def test_calls_become_events() -> None:
    created = parse("create_topics", CREATE)
    assert isinstance(created, CreateTopics)
    assert created.call == {**CREATE, "internal": False}
    deleted = parse("delete_topics", DELETE)
    assert isinstance(deleted, DeleteTopics)
    assert deleted.call == DELETE
    grown = parse("create_partitions", GROW)
    assert isinstance(grown, CreatePartitions)
    assert grown.call == GROW
    altered = parse("alter_configs", ALTER)
    assert isinstance(altered, AlterConfigs)
    assert altered.call == ALTER
    assert parse("controlled_shutdown", {}) == ShutDownBroker(7, 9)
    assert parse("allocate_producer_ids", {}) == AllocateProducerIds(7)
    confirmed = parse("confirm_deletions", {"topic_ids": [b"x" * 16]})
    assert confirmed == ConfirmDeletions(7, [b"x" * 16])


WRONG = [
    ("drop_everything", {}),
    (None, {}),
    (["create_topics"], {}),
    ("create_topics", None),
    ("create_topics", {}),
    ("create_topics", {**CREATE, "topics": None}),
    ("create_topics", {**CREATE, "topics": [None]}),
    ("create_topics", {**CREATE, "topics": [{**TOPIC, "name": b"t"}]}),
    ("create_topics", {**CREATE, "topics": [{**TOPIC, "partitions": "1"}]}),
    ("create_topics", {**CREATE, "topics": [{**TOPIC, "partitions": 2**31}]}),
    ("create_topics", {**CREATE, "topics": [{**TOPIC, "assignments": [[1]]}]}),
    ("create_topics", {**CREATE, "topics": [{**TOPIC, "assignments": {0: 1}}]}),
    ("create_topics", {**CREATE, "validate_only": 0}),
    ("delete_topics", {"topics": [{"name": None, "topic_id": b"x"}]}),
    ("create_partitions", {**GROW, "topics": [{"name": "t"}]}),
    ("alter_configs", {**ALTER, "resources": [{"resource_type": 2, "name": "t"}]}),
    ("alter_configs", {**ALTER, "incremental": None}),
    ("confirm_deletions", {"topic_ids": "x"}),
    ("confirm_deletions", {"topic_ids": ["x" * 16]}),
]


@pytest.mark.parametrize(("method", "body"), WRONG)
def test_other_shapes_are_refused(method: object, body: object) -> None:
    with pytest.raises(CodecError):
        parse(method, body)
