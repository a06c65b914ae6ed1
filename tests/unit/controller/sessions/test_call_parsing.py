from typing import TYPE_CHECKING, Any

import pytest

from fairlead_controller.decisions.events import (
    AllocateProducerIds,
    AlterClientQuotas,
    AlterConfigs,
    AlterReassignments,
    ConfirmDeletions,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ListReassignments,
    QuotaChanges,
    ShutDownBroker,
)
from fairlead_controller.sessions.call_parsing import parse_call
from fairlead_model.codec import CodecError

if TYPE_CHECKING:
    from fairlead_model.session.calls import AlterReassignmentsCall, ConfirmedRemoval

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
    "group_limits": {"group.consumer.min.session.timeout.ms": "1"},
}


def parse(method: object, body: object) -> Any:
    return parse_call(method, body, broker_id=7, broker_epoch=9)


def test_changes_of_quotas_become_an_event_of_entities_that_kafka_knows() -> None:
    entry = {
        "entity": [["client-id", None], ["user", "a"]],
        "alterations": [{"key": "request_percentage", "value": 1}],
    }
    body = {"entries": [entry], "validate_only": True, "asked_by": "User:admin"}
    entity = (("user", "a"), ("client-id", None))
    changes = QuotaChanges(entity, (("request_percentage", 1),))
    assert parse("alter_client_quotas", body) == AlterClientQuotas((changes,), True, "User:admin")
    for wrong in (
        {**entry, "entity": []},
        {**entry, "entity": [["user"]]},
        {**entry, "entity": [["group", "a"]]},
        {**entry, "alterations": [{"key": "request_percentage", "value": "1"}]},
        {**entry, "alterations": [{"key": "request_percentage"}]},
    ):
        with pytest.raises(CodecError):
            parse("alter_client_quotas", {**body, "entries": [wrong]})


def test_calls_become_events() -> None:
    created = parse("create_topics", CREATE)
    assert isinstance(created, CreateTopics)
    assert created.call == {**CREATE, "internal": False, "asker": None}
    deleted = parse("delete_topics", DELETE)
    assert isinstance(deleted, DeleteTopics)
    assert deleted.call == {**DELETE, "asker": None}
    grown = parse("create_partitions", GROW)
    assert isinstance(grown, CreatePartitions)
    assert grown.call == {**GROW, "asker": None}
    altered = parse("alter_configs", ALTER)
    assert isinstance(altered, AlterConfigs)
    assert altered.call == ALTER
    older = {name: value for name, value in ALTER.items() if name != "group_limits"}
    assert parse("alter_configs", older).call == older | {"group_limits": {}}
    assert parse("controlled_shutdown", {}) == ShutDownBroker(7, 9)
    assert parse("allocate_producer_ids", {}) == AllocateProducerIds(7)
    confirmed = parse("confirm_deletions", {"topic_ids": [b"x" * 16]})
    assert confirmed == ConfirmDeletions(7, [b"x" * 16], [])
    removal: ConfirmedRemoval = {"topic_id": b"x" * 16, "index": 3, "leader_epoch": 5}
    confirmed = parse("confirm_deletions", {"topic_ids": [], "removals": [removal]})
    assert confirmed == ConfirmDeletions(7, [], [removal])
    moves: AlterReassignmentsCall = {
        "partitions": [{"topic": "t", "index": 0, "replicas": [1, 2]}],
        "allow_replication_factor_change": True,
    }
    assert parse("alter_partition_reassignments", moves) == AlterReassignments(moves)
    assert parse("list_partition_reassignments", {"partitions": None}) == ListReassignments(
        {"partitions": None}
    )


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
    ("alter_configs", {**ALTER, "group_limits": {"a": 1}}),
    ("alter_configs", {**ALTER, "group_limits": 1}),
    ("confirm_deletions", {"topic_ids": "x"}),
    ("confirm_deletions", {"topic_ids": ["x" * 16]}),
]


@pytest.mark.parametrize(("method", "body"), WRONG)
def test_other_shapes_are_refused(method: object, body: object) -> None:
    with pytest.raises(CodecError):
        parse(method, body)


RULE = [2, 3, "orders", "User:alice", "*", 4, 3]
KEYS = [4096, b"s" * 16, b"k" * 32, b"v" * 32]
GIVEN = {"user": "alice", "mechanism": 1, "credential": KEYS}


def test_calls_about_rules_and_users() -> None:
    created = parse("create_acls", {"acls": [RULE], "asked_by": "User:admin"})
    assert [list(rule) for rule in created.rules] == [RULE]
    anything = [1, 1, None, None, None, 1, 1]
    deleted = parse("delete_acls", {"filters": [anything], "asked_by": "User:admin"})
    assert [list(wanted) for wanted in deleted.filters] == [anything]
    body = {"deletions": [{"user": "bob", "mechanism": 2}], "upsertions": [GIVEN], "asked_by": "x"}
    altered = parse("alter_credentials", body)
    assert altered.deletions == (("bob", 2),)
    ((user, credential),) = altered.upsertions
    assert (user, credential.iterations, credential.stored_key) == ("alice", 4096, b"k" * 32)


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("create_acls", {"acls": [RULE]}),
        ("create_acls", {"acls": [RULE[:6]], "asked_by": "x"}),
        ("create_acls", {"acls": [[99, *RULE[1:]]], "asked_by": "x"}),
        ("create_acls", {"acls": [[1, *RULE[1:]]], "asked_by": "x"}),
        ("delete_acls", {"filters": [[0, 1, None, None, None, 1, 1]], "asked_by": "x"}),
        ("delete_acls", {"filters": [[1, 1, 5, None, None, 1, 1]], "asked_by": "x"}),
        ("delete_acls", {"filters": [None], "asked_by": "x"}),
        ("alter_credentials", {"deletions": [], "upsertions": [{**GIVEN, "mechanism": 3}]}),
        (
            "alter_credentials",
            {"deletions": [], "upsertions": [{**GIVEN, "credential": [1]}], "asked_by": "x"},
        ),
        (
            "alter_credentials",
            {
                "deletions": [],
                "upsertions": [{**GIVEN, "credential": [4096, "s", "k", "v"]}],
                "asked_by": "x",
            },
        ),
    ],
)
def test_calls_about_rules_and_users_that_are_malformed(method: str, body: Any) -> None:
    with pytest.raises(CodecError):
        parse(method, body)
