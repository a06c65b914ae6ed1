"""Parses calls of brokers into events, and checks the form of every field before any decision."""

from collections.abc import Callable
from typing import Any, Final

from fairlead_controller.decisions.events import (
    AllocateProducerIds,
    AlterClientQuotas,
    AlterConfigs,
    AlterCredentials,
    AlterPartition,
    AlterReassignments,
    ConfirmDeletions,
    CreateAcls,
    CreatePartitions,
    CreateTopics,
    DeleteAcls,
    DeleteTopics,
    ElectOnRequest,
    Event,
    ListReassignments,
    QuotaChanges,
    ReportLogs,
    ReportOffline,
    ShutDownBroker,
    UnregisterBroker,
    UpdateFeatures,
)
from fairlead_model.codec import (
    CodecError,
    decode_acl,
    decode_credential,
    decode_mechanism,
    decode_quota_entity,
    flag,
    text,
    topic_id,
    whole,
)
from fairlead_model.ids import BrokerEpoch, BrokerId
from fairlead_model.security.acl import (
    ACL_TEXT_MAX,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    filter_problem,
)
from fairlead_model.security.client_quota import KEY_LENGTH_MAX
from fairlead_model.session.calls import (
    AlterableResource,
    AlterConfigsCall,
    AlterPartitionCall,
    AlterReassignmentsCall,
    ConfigAlteration,
    ConfirmedRemoval,
    CreatableTopic,
    CreatePartitionsCall,
    CreateTopicsCall,
    DeletableTopic,
    DeleteTopicsCall,
    ElectablePartition,
    ElectLeadersCall,
    FeatureUpdate,
    GrowableTopic,
    IsrProposal,
    ListReassignmentsCall,
    LocatedPartition,
    LogEnd,
    Method,
    MutationAsker,
    ReassignablePartition,
    ReportLogsCall,
    ReportOfflineCall,
    UpdateFeaturesCall,
)

Body = dict[str, Any]


def parse_call(
    method: object, body: object, *, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> Event:
    """Return the event that a call means; raise CodecError if the call is malformed."""
    if not isinstance(body, dict):
        raise CodecError("the body of a call is a mapping")
    match method:
        case Method.CONTROLLED_SHUTDOWN:
            return ShutDownBroker(broker_id, broker_epoch)
        case Method.ALLOCATE_PRODUCER_IDS:
            return AllocateProducerIds(broker_id)
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
    """Check that a count is a whole number; its bounds are checked by the decision."""
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
            asker=_asker(body),
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
    return DeleteTopics(DeleteTopicsCall(topics=topics, asker=_asker(body)))


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
    call = CreatePartitionsCall(
        topics=topics, validate_only=flag(body["validate_only"]), asker=_asker(body)
    )
    return CreatePartitions(call)


def _asker(body: Body) -> MutationAsker | None:
    """Read the client that a quota limits; brokers of older releases do not send it."""
    asker = body.get("asker")
    if asker is None:
        return None
    return MutationAsker(
        user=text(asker["user"]),
        client_id=text(asker["client_id"]),
        is_strict=flag(asker["is_strict"]),
        burst_s=whole(asker["burst_s"], minimum=1),
    )


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
            group_limits={
                text(name): text(value) for name, value in body.get("group_limits", {}).items()
            },
        )
    )


def _parse_elect_leaders(body: Body) -> Event:
    wanted = _named_partitions(body)
    call = ElectLeadersCall(partitions=wanted, election_type=_count(body["election_type"]))
    return ElectOnRequest(call)


def _parse_update_features(body: Body) -> Event:
    updates = [
        FeatureUpdate(
            feature=text(update["feature"]),
            level=_count(update["level"]),
            upgrade_type=_count(update["upgrade_type"]),
        )
        for update in _items(body, "updates")
    ]
    return UpdateFeatures(
        UpdateFeaturesCall(updates=updates, validate_only=flag(body["validate_only"]))
    )


def _parse_unregister_broker(body: Body) -> Event:
    return UnregisterBroker(_count(body["broker_id"]))


def _named_partitions(body: Body) -> list[ElectablePartition] | None:
    if body["partitions"] is None:
        return None
    return [
        ElectablePartition(topic=text(item["topic"]), index=_count(item["index"]))
        for item in _items(body, "partitions")
    ]


def _parse_alter_reassignments(body: Body) -> Event:
    wanted = [
        ReassignablePartition(
            topic=text(item["topic"]),
            index=_count(item["index"]),
            replicas=None if item["replicas"] is None else _replicas(item["replicas"]),
        )
        for item in _items(body, "partitions")
    ]
    call = AlterReassignmentsCall(
        partitions=wanted,
        allow_replication_factor_change=flag(body["allow_replication_factor_change"]),
    )
    return AlterReassignments(call)


def _parse_list_reassignments(body: Body) -> Event:
    return ListReassignments(ListReassignmentsCall(partitions=_named_partitions(body)))


def _parse_create_acls(body: Body) -> Event:
    rules = tuple(decode_acl(rule) for rule in _items(body, "acls"))
    return CreateAcls(rules, _asked_by(body))


def _parse_delete_acls(body: Body) -> Event:
    filters = tuple(_acl_filter(value) for value in _items(body, "filters"))
    return DeleteAcls(filters, _asked_by(body))


def _acl_filter(value: object) -> AclFilter:
    if not isinstance(value, list) or len(value) < 7:
        raise CodecError("a filter of access rules has seven fields")
    try:
        wanted = AclFilter(
            ResourceType(whole(value[0])),
            PatternType(whole(value[1])),
            _acl_text(value[2]),
            _acl_text(value[3]),
            _acl_text(value[4]),
            Operation(whole(value[5])),
            Permission(whole(value[6])),
        )
    except ValueError as error:
        raise CodecError(str(error)) from None
    if problem := filter_problem(wanted):
        raise CodecError(problem)
    return wanted


def _acl_text(value: object) -> str | None:
    return None if value is None else text(value, length_max=ACL_TEXT_MAX)


def _parse_alter_credentials(body: Body) -> Event:
    deletions = tuple(
        (text(item["user"]), decode_mechanism(item["mechanism"]))
        for item in _items(body, "deletions")
    )
    upsertions = tuple(
        (
            text(item["user"]),
            decode_credential(decode_mechanism(item["mechanism"]), item["credential"]),
        )
        for item in _items(body, "upsertions")
    )
    return AlterCredentials(deletions, upsertions, _asked_by(body))


def _parse_alter_client_quotas(body: Body) -> Event:
    entries = tuple(
        QuotaChanges(
            decode_quota_entity(entry["entity"]),
            tuple(
                (text(each["key"], length_max=KEY_LENGTH_MAX), _quota_value(each["value"]))
                for each in _items(entry, "alterations")
            ),
        )
        for entry in _items(body, "entries")
    )
    return AlterClientQuotas(entries, flag(body["validate_only"]), _asked_by(body))


def _quota_value(value: object) -> float | None:
    """Check that a value is a number; the decision checks whether it is a valid quota."""
    if value is not None and type(value) not in (int, float):
        raise CodecError("the value of a quota is not a number")
    return value  # type: ignore[return-value]


def _asked_by(body: Body) -> str:
    return text(body["asked_by"])


_PARSERS: Final[dict[str, Callable[[Body], Event]]] = {
    Method.CREATE_TOPICS: _parse_create_topics,
    Method.DELETE_TOPICS: _parse_delete_topics,
    Method.CREATE_PARTITIONS: _parse_create_partitions,
    Method.ALTER_CONFIGS: _parse_alter_configs,
    Method.ELECT_LEADERS: _parse_elect_leaders,
    Method.UPDATE_FEATURES: _parse_update_features,
    Method.UNREGISTER_BROKER: _parse_unregister_broker,
    Method.ALTER_PARTITION_REASSIGNMENTS: _parse_alter_reassignments,
    Method.LIST_PARTITION_REASSIGNMENTS: _parse_list_reassignments,
    Method.CREATE_ACLS: _parse_create_acls,
    Method.DELETE_ACLS: _parse_delete_acls,
    Method.ALTER_CREDENTIALS: _parse_alter_credentials,
    Method.ALTER_CLIENT_QUOTAS: _parse_alter_client_quotas,
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
    if not isinstance(value, list) or len(value) < 2:
        raise CodecError("a member of an ISR has two numbers")
    return [whole(value[0]), whole(value[1], minimum=-1)]


def _parse_confirm_deletions(body: Body, broker_id: BrokerId) -> Event:
    removals = [
        ConfirmedRemoval(
            topic_id=topic_id(item["topic_id"]),
            index=whole(item["index"]),
            leader_epoch=whole(item["leader_epoch"]),
        )
        for item in body.get("removals", ())
    ]
    return ConfirmDeletions(
        broker_id, [topic_id(each) for each in _items(body, "topic_ids")], removals
    )


def _parse_report_offline(body: Body, broker_id: BrokerId) -> Event:
    after, until = body.get("after"), body.get("until")
    call = ReportOfflineCall(
        broker_epoch=whole(body["broker_epoch"]),
        partitions=[_located(item) for item in _items(body, "partitions")],
        is_unclean=flag(body["is_unclean"]),
        lacks_room=flag(body.get("lacks_room", False)),
        after=None if after is None else _located(after),
        until=None if until is None else _located(until),
    )
    return ReportOffline(broker_id, call)


def _located(item: Any) -> LocatedPartition:
    return LocatedPartition(topic_id=topic_id(item["topic_id"]), index=whole(item["index"]))


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
    Method.CONFIRM_DELETIONS: _parse_confirm_deletions,
    Method.ALTER_PARTITION: _parse_alter_partition,
    Method.REPORT_OFFLINE: _parse_report_offline,
    Method.REPORT_LOGS: _parse_report_logs,
}
"""Parsers of calls that depend on the broker that sends them."""
