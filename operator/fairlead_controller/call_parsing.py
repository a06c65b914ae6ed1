"""Calls of brokers as events: the shape of every field is checked before anything is decided."""

from collections.abc import Callable
from typing import Any, Final

from fairlead_controller.events import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartition,
    ConfirmDeletions,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectOnRequest,
    Event,
    ReportLogs,
    ReportOffline,
    ShutDownBroker,
)
from fairlead_model.calls import (
    AlterableResource,
    AlterConfigsCall,
    AlterPartitionCall,
    ConfigAlteration,
    CreatableTopic,
    CreatePartitionsCall,
    CreateTopicsCall,
    DeletableTopic,
    DeleteTopicsCall,
    ElectablePartition,
    ElectLeadersCall,
    GrowableTopic,
    IsrProposal,
    LocatedPartition,
    LogEnd,
    Method,
    ReportLogsCall,
    ReportOfflineCall,
)
from fairlead_model.codec import CodecError, flag, text, topic_id, whole
from fairlead_model.ids import BrokerEpoch, BrokerId

Body = dict[str, Any]


def parse_call(
    method: object, body: object, *, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> Event:
    """Give the event that a call means; CodecError if it is not one."""
    if not isinstance(body, dict):
        raise CodecError("the body of a call is a mapping")
    match method:
        case Method.CONTROLLED_SHUTDOWN:
            return ShutDownBroker(broker_id, broker_epoch)
        case Method.ALLOCATE_PRODUCER_IDS:
            return AllocateProducerIds(broker_id)
        case Method.CONFIRM_DELETIONS:
            return ConfirmDeletions(broker_id, [topic_id(one) for one in _items(body, "topic_ids")])
    if not isinstance(method, str) or method not in _PARSERS.keys() | _PARSERS_OF_BROKERS.keys():
        raise CodecError(f"unknown method {str(method)[:40]!r}")
    try:
        if method in _PARSERS:
            return _PARSERS[method](body)
        return _PARSERS_OF_BROKERS[method](body, broker_id)
    except (KeyError, TypeError, AttributeError) as error:
        raise CodecError(f"{method}: a field is missing or of another shape: {error}") from error


def _items(body: Body, name: str) -> list[Any]:
    items = body.get(name)
    if not isinstance(items, list):
        raise CodecError(f"{name} is not a list")
    return items


def _count(value: object) -> int:
    """Check a count that a client chose; what it may be is the decision's business."""
    return whole(value, minimum=-(2**31), maximum=2**31 - 1)


def _replicas(value: object) -> list[int]:
    if not isinstance(value, list):
        raise CodecError("the replicas of an assignment are not a list")
    return [_count(broker_id) for broker_id in value]


def _parse_create_topics(body: Body) -> Event:
    topics = [
        CreatableTopic(
            name=text(topic["name"]),
            partitions=_count(topic["partitions"]),
            replication_factor=_count(topic["replication_factor"]),
            assignments={
                _count(index): _replicas(replicas)
                for index, replicas in topic["assignments"].items()
            },
            configs={
                text(name): None if value is None else text(value)
                for name, value in topic["configs"].items()
            },
        )
        for topic in _items(body, "topics")
    ]
    return CreateTopics(
        CreateTopicsCall(
            topics=topics,
            validate_only=flag(body["validate_only"]),
            default_partitions=_count(body["default_partitions"]),
            default_replication_factor=_count(body["default_replication_factor"]),
            internal=flag(body.get("internal", False)),
        )
    )


def _parse_delete_topics(body: Body) -> Event:
    topics = [
        DeletableTopic(
            name=None if topic["name"] is None else text(topic["name"]),
            topic_id=topic_id(topic["topic_id"]),
        )
        for topic in _items(body, "topics")
    ]
    return DeleteTopics(DeleteTopicsCall(topics=topics))


def _parse_create_partitions(body: Body) -> Event:
    topics = [
        GrowableTopic(
            name=text(topic["name"]),
            count=_count(topic["count"]),
            assignments=None
            if topic["assignments"] is None
            else [_replicas(replicas) for replicas in topic["assignments"]],
        )
        for topic in _items(body, "topics")
    ]
    call = CreatePartitionsCall(topics=topics, validate_only=flag(body["validate_only"]))
    return CreatePartitions(call)


def _parse_alter_configs(body: Body) -> Event:
    resources = [
        AlterableResource(
            resource_type=_count(resource["resource_type"]),
            name=text(resource["name"]),
            alterations=[
                ConfigAlteration(
                    name=text(alteration["name"]),
                    operation=_count(alteration["operation"]),
                    value=None if alteration["value"] is None else text(alteration["value"]),
                )
                for alteration in _items(resource, "alterations")
            ],
        )
        for resource in _items(body, "resources")
    ]
    return AlterConfigs(
        AlterConfigsCall(
            resources=resources,
            validate_only=flag(body["validate_only"]),
            incremental=flag(body["incremental"]),
        )
    )


def _parse_elect_leaders(body: Body) -> Event:
    wanted: list[ElectablePartition] | None = None
    if body["partitions"] is not None:
        wanted = [
            ElectablePartition(topic=text(item["topic"]), index=_count(item["index"]))
            for item in _items(body, "partitions")
        ]
    call = ElectLeadersCall(partitions=wanted, election_type=_count(body["election_type"]))
    return ElectOnRequest(call)


_PARSERS: Final[dict[str, Callable[[Body], Event]]] = {
    Method.CREATE_TOPICS: _parse_create_topics,
    Method.DELETE_TOPICS: _parse_delete_topics,
    Method.CREATE_PARTITIONS: _parse_create_partitions,
    Method.ALTER_CONFIGS: _parse_alter_configs,
    Method.ELECT_LEADERS: _parse_elect_leaders,
}


def _parse_alter_partition(body: Body, broker_id: BrokerId) -> Event:
    proposals = [
        IsrProposal(
            topic_id=topic_id(proposal["topic_id"]),
            index=whole(proposal["index"]),
            leader_epoch=whole(proposal["leader_epoch"]),
            partition_epoch=whole(proposal["partition_epoch"]),
            isr=[_member(member) for member in _items(proposal, "isr")],
        )
        for proposal in _items(body, "partitions")
    ]
    epoch = whole(body["broker_epoch"])
    return AlterPartition(broker_id, AlterPartitionCall(broker_epoch=epoch, partitions=proposals))


def _member(value: object) -> list[int]:
    if not isinstance(value, list) or len(value) != 2:
        raise CodecError("a member of an ISR has two numbers")
    return [whole(value[0]), whole(value[1], minimum=-1)]


def _parse_report_offline(body: Body, broker_id: BrokerId) -> Event:
    partitions = [
        LocatedPartition(topic_id=topic_id(item["topic_id"]), index=whole(item["index"]))
        for item in _items(body, "partitions")
    ]
    call = ReportOfflineCall(
        broker_epoch=whole(body["broker_epoch"]),
        partitions=partitions,
        is_unclean=flag(body["is_unclean"]),
    )
    return ReportOffline(broker_id, call)


def _parse_report_logs(body: Body, broker_id: BrokerId) -> Event:
    logs = [
        LogEnd(
            topic_id=topic_id(item["topic_id"]),
            index=whole(item["index"]),
            leader_epoch=whole(item["leader_epoch"]),
            last_epoch=whole(item["last_epoch"], minimum=-1),
            log_end_offset=whole(item["log_end_offset"]),
        )
        for item in _items(body, "partitions")
    ]
    epoch = whole(body["broker_epoch"])
    return ReportLogs(broker_id, ReportLogsCall(broker_epoch=epoch, partitions=logs))


_PARSERS_OF_BROKERS: Final[dict[str, Callable[[Body, BrokerId], Event]]] = {
    Method.ALTER_PARTITION: _parse_alter_partition,
    Method.REPORT_OFFLINE: _parse_report_offline,
    Method.REPORT_LOGS: _parse_report_logs,
}
"""Calls in which it matters who asks."""
