"""What each API answers to who may not use it, with an authorizer that denies."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from denying import EVERYTHING, Denying, as_bytes, error_codes
from live_broker import batch

from fairlead_broker.api_registry import HANDLERS
from fairlead_broker.authorization import (
    ANONYMOUS,
    CLUSTER_NAME,
    Access,
    Need,
    Operation,
    ResourceType,
)
from fairlead_broker.limits import MEMBER_TOPICS_MAX
from fairlead_model.cluster import (
    AclChanged,
    CredentialChanged,
    GroupConfigsChanged,
)
from fairlead_model.security.acl import AclBinding, PatternType, Permission
from fairlead_model.security.scram import ScramMechanism, derive
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from fairlead_wire.messages.envelope import EnvelopeRequest

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
DENIED = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def committed(topic: str) -> Any:
    partition = offset_commit.OffsetCommitRequestPartition(0, 5)
    return offset_commit.OffsetCommitRequestTopic(topic, partitions=[partition])


def fetched_offsets(version: int) -> Any:
    topic = offset_fetch.OffsetFetchRequestTopic("t", [0])
    if version < 8:
        return offset_fetch.OffsetFetchRequest("g", [topic])
    many = offset_fetch.OffsetFetchRequestTopics("t", partition_indexes=[0])
    group = offset_fetch.OffsetFetchRequestGroup("g", topics=[many])
    return offset_fetch.OffsetFetchRequest(groups=[group])


def offset_in_transaction(version: int) -> Any:
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(
        "t", [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1)]
    )
    return txn_offset_commit.TxnOffsetCommitRequest("x", "g", 1, 0, topics=[topic])


def coordinator_of(version: int) -> Any:
    if version < 4:
        return find_coordinator.FindCoordinatorRequest("g")
    return find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"])


def deleted_topics(version: int) -> Any:
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=["t"])
    return delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState("t")])


REQUESTS: dict[ApiKey, tuple[Any, ResourceType]] = {
    ApiKey.PRODUCE: (
        lambda version: produce.ProduceRequest(
            acks=1,
            topic_data=[
                produce.TopicProduceData(
                    "t", partition_data=[produce.PartitionProduceData(0, batch(b"v"))]
                )
            ],
        ),
        TOPIC,
    ),
    ApiKey.LIST_OFFSETS: (
        lambda version: list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic("t", [list_offsets.ListOffsetsPartition(0, -1, -1)])
            ],
        ),
        TOPIC,
    ),
    ApiKey.METADATA: (
        lambda version: metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")]),
        TOPIC,
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        lambda version: describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest("t")]
        ),
        TOPIC,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        lambda version: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    "t", [offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)]
                )
            ],
        ),
        TOPIC,
    ),
    ApiKey.CREATE_TOPICS: (
        lambda version: create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic("t", 1, 1)]
        ),
        TOPIC,
    ),
    ApiKey.DELETE_TOPICS: (deleted_topics, TOPIC),
    ApiKey.CREATE_PARTITIONS: (
        lambda version: create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic("t", 2, None)]
        ),
        TOPIC,
    ),
    ApiKey.DELETE_RECORDS: (
        lambda version: delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic("t", [delete_records.DeleteRecordsPartition(0, 0)])]
        ),
        TOPIC,
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        lambda version: describe_configs.DescribeConfigsRequest(
            [describe_configs.DescribeConfigsResource(2, "t", None)]
        ),
        TOPIC,
    ),
    ApiKey.ALTER_CONFIGS: (
        lambda version: alter_configs.AlterConfigsRequest(
            [alter_configs.AlterConfigsResource(2, "t")]
        ),
        TOPIC,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        lambda version: incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(4, "")]
        ),
        CLUSTER,
    ),
    ApiKey.LIST_CONFIG_RESOURCES: (
        lambda version: list_config_resources.ListConfigResourcesRequest(),
        CLUSTER,
    ),
    ApiKey.FIND_COORDINATOR: (coordinator_of, GROUP),
    ApiKey.JOIN_GROUP: (lambda version: join_group.JoinGroupRequest("g", 10_000), GROUP),
    ApiKey.SYNC_GROUP: (lambda version: sync_group.SyncGroupRequest("g", 1, "m"), GROUP),
    ApiKey.HEARTBEAT: (lambda version: heartbeat.HeartbeatRequest("g", 1, "m"), GROUP),
    ApiKey.LEAVE_GROUP: (lambda version: leave_group.LeaveGroupRequest("g"), GROUP),
    ApiKey.OFFSET_COMMIT: (
        lambda version: offset_commit.OffsetCommitRequest("g", topics=[committed("t")]),
        GROUP,
    ),
    ApiKey.OFFSET_FETCH: (fetched_offsets, GROUP),
    ApiKey.OFFSET_DELETE: (lambda version: offset_delete.OffsetDeleteRequest("g"), GROUP),
    ApiKey.DESCRIBE_GROUPS: (
        lambda version: describe_groups.DescribeGroupsRequest(["g"]),
        GROUP,
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        lambda version: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "m"),
        GROUP,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        lambda version: consumer_group_describe.ConsumerGroupDescribeRequest(["g"]),
        GROUP,
    ),
    ApiKey.DELETE_GROUPS: (lambda version: delete_groups.DeleteGroupsRequest(["g"]), GROUP),
    ApiKey.INIT_PRODUCER_ID: (
        lambda version: init_producer_id.InitProducerIdRequest(None, 1000),
        CLUSTER,
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        lambda version: add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic("t", [0])],
        ),
        TRANSACTIONAL_ID,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        lambda version: add_offsets_to_txn.AddOffsetsToTxnRequest("x", 1, 0, "g"),
        TRANSACTIONAL_ID,
    ),
    ApiKey.TXN_OFFSET_COMMIT: (offset_in_transaction, TRANSACTIONAL_ID),
    ApiKey.END_TXN: (lambda version: end_txn.EndTxnRequest("x", 1, 0, True), TRANSACTIONAL_ID),
    ApiKey.WRITE_TXN_MARKERS: (
        lambda version: write_txn_markers.WriteTxnMarkersRequest(
            [
                write_txn_markers.WritableTxnMarker(
                    1, 0, True, [write_txn_markers.WritableTxnMarkerTopic("t", [0])]
                )
            ]
        ),
        CLUSTER,
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        lambda version: describe_producers.DescribeProducersRequest(
            [describe_producers.TopicRequest("t", [0])]
        ),
        TOPIC,
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        lambda version: describe_transactions.DescribeTransactionsRequest(["x"]),
        TRANSACTIONAL_ID,
    ),
    ApiKey.ELECT_LEADERS: (
        lambda version: elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions("t", [0])]
        ),
        CLUSTER,
    ),
    # For brokers alone: no version of it is served to clients.
    ApiKey.ENVELOPE: (lambda version: EnvelopeRequest(), CLUSTER),
    ApiKey.UPDATE_FEATURES: (lambda version: update_features.UpdateFeaturesRequest(), CLUSTER),
    ApiKey.UNREGISTER_BROKER: (
        lambda version: unregister_broker.UnregisterBrokerRequest(2),
        CLUSTER,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        lambda version: alter_partition_reassignments.AlterPartitionReassignmentsRequest(),
        CLUSTER,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        lambda version: list_partition_reassignments.ListPartitionReassignmentsRequest(),
        CLUSTER,
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        lambda version: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            [
                alter_replica_log_dirs.AlterReplicaLogDir(
                    "/a", [alter_replica_log_dirs.AlterReplicaLogDirTopic("t", [0])]
                )
            ]
        ),
        CLUSTER,
    ),
    ApiKey.DESCRIBE_LOG_DIRS: (
        lambda version: describe_log_dirs.DescribeLogDirsRequest(None),
        CLUSTER,
    ),
    ApiKey.DESCRIBE_ACLS: (
        lambda version: describe_acls.DescribeAclsRequest(2, "t", 3, None, None, 1, 1),
        CLUSTER,
    ),
    ApiKey.CREATE_ACLS: (
        lambda version: create_acls.CreateAclsRequest(
            [create_acls.AclCreation(2, "t", 3, "User:a", "*", 3, 3)]
        ),
        CLUSTER,
    ),
    ApiKey.DELETE_ACLS: (
        lambda version: delete_acls.DeleteAclsRequest(
            [delete_acls.DeleteAclsFilter(2, "t", 3, None, None, 1, 1)]
        ),
        CLUSTER,
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (
        lambda version: describe_client_quotas.DescribeClientQuotasRequest(),
        CLUSTER,
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        lambda version: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(None),
        CLUSTER,
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        lambda version: alter_client_quotas.AlterClientQuotasRequest(
            [alter_client_quotas.RequestEntryData()]
        ),
        CLUSTER,
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        lambda version: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            [alter_user_scram_credentials.ScramCredentialDeletion("u", 1)]
        ),
        CLUSTER,
    ),
}
"""A request of each API that can be denied, and what of it is: the codes tell."""

SAY_NOTHING = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
"""Versions that have no place for the error: the reply is empty, as Kafka's is."""

FOR_BROKERS = {(ApiKey.ADD_PARTITIONS_TO_TXN, 4), (ApiKey.ADD_PARTITIONS_TO_TXN, 5)}
"""Versions that no client may use; nobody is asked."""

BY_ID_ONLY = {(ApiKey.PRODUCE, 13)}
"""Versions that have no names."""

VERSIONS = [
    (api_key, version)
    for api_key in REQUESTS
    for version in range(HANDLERS[api_key].versions[0], HANDLERS[api_key].versions[1] + 1)
    if (api_key, version) not in FOR_BROKERS | BY_ID_ONLY
]


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_who_may_nothing_is_told_so(stage: Any, api_key: ApiKey, version: int) -> None:
    stage.topic("t")
    stage.append("t", b"a")
    make, resource_type = REQUESTS[api_key]
    stage.authorizer = Denying(*EVERYTHING)
    reply = stage.ask(make(version), version)
    expected = set() if (api_key, version) in SAY_NOTHING else {DENIED[resource_type]}
    assert set(error_codes(reply)) - {ErrorCode.NONE} == expected
    assert stage.partition("t").log_end_offset == 1
    assert stage.controller.calls == []
    assert stage.authorizer.principals == {(ANONYMOUS, "127.0.0.1")}


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(ApiKey.DESCRIBE_ACLS, 3), (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0)],
)
def test_a_denial_says_so_in_words(stage: Any, api_key: ApiKey, version: int) -> None:
    """librdkafka takes an error of DescribeAcls whose text is empty for no rules at all."""
    stage.authorizer = Denying(*EVERYTHING)
    reply = stage.ask(REQUESTS[api_key][0](version), version)
    assert reply.error_message == ErrorCode.CLUSTER_AUTHORIZATION_FAILED.description


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_who_may_nothing_cannot_tell_what_is_there_from_what_is_not(
    stage: Any, api_key: ApiKey, version: int
) -> None:
    make, _ = REQUESTS[api_key]
    stage.authorizer = Denying(*EVERYTHING)
    missing = as_bytes(stage.ask(make(version), version), version)
    stage.topic("t", partitions=3)
    stage.append("t", b"a")
    rule = AclBinding(
        TOPIC, PatternType.LITERAL, "t", "User:a", "*", Operation.READ, Permission.ALLOW
    )
    credential = derive(ScramMechanism.SCRAM_SHA_256, "p", 4096, b"s" * 16)
    stage.publish(
        AclChanged(rule),
        CredentialChanged("u", ScramMechanism.SCRAM_SHA_256, credential),
        GroupConfigsChanged("g", {"consumer.session.timeout.ms": "50000"}),
    )
    assert as_bytes(stage.ask(make(version), version), version) == missing
    assert stage.controller.calls == []


@pytest.mark.parametrize("version", range(1, 7))
def test_who_may_describe_a_topic_but_not_delete_it_is_told_that_there_is_none(
    stage: Any, version: int
) -> None:
    class Describing(Denying):
        def is_allowed(
            self, principal: Any, host: str, operation: Operation, *resource: Any
        ) -> bool:
            allowed = super().is_allowed(principal, host, operation, *resource)
            return allowed or operation is Operation.DESCRIBE

    stage.authorizer = Describing((CLUSTER, CLUSTER_NAME), (TOPIC, "t"))
    asked = deleted_topics(version)
    assert list(error_codes(stage.ask(asked, version))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    stage.topic("t")
    assert list(error_codes(stage.ask(asked, version))) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_deletion_that_names_a_topic_in_two_ways_or_none_is_invalid_before_it_is_denied(
    stage: Any, is_there: bool
) -> None:
    """As in `ControllerApis`: the request alone tells, so nobody learns more by it."""
    topic_id = bytes(range(16))
    if is_there:
        topic_id = stage.topic("t")
    stage.authorizer = Denying(*EVERYTHING)
    topics = [
        delete_topics.DeleteTopicState("t", topic_id),
        delete_topics.DeleteTopicState(None),
    ]
    reply = stage.ask(delete_topics.DeleteTopicsRequest(topics), 6)
    assert list(error_codes(reply)) == [ErrorCode.INVALID_REQUEST] * 2
    assert stage.authorizer.asked == [(Operation.DELETE, CLUSTER, CLUSTER_NAME)]
    assert stage.controller.calls == []


def test_every_api_has_its_row_in_the_page_for_users() -> None:
    page = (Path(__file__).parents[3] / "docs/security.md").read_text()
    table = page.partition("| API | needs | denied |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.split(" | ")[0].removeprefix("| ").lower() for line in table.splitlines()]
    assert sorted(rows) == sorted(ApiKey(key).name.replace("_", "").lower() for key in HANDLERS)


def test_every_api_says_what_it_needs() -> None:
    free = {key for key, handler in HANDLERS.items() if handler.access is Access.EVERYBODY}
    assert free == {
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
    told_apart = {ApiKey.FETCH, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
    assert set(HANDLERS) == free | told_apart | set(REQUESTS)
    needs = {
        ApiKey(key): (handler.access.operation, handler.access.resource_type)
        for key, handler in HANDLERS.items()
        if isinstance(handler.access, Need)
    }
    assert needs == {
        ApiKey.JOIN_GROUP: (Operation.READ, GROUP),
        ApiKey.SYNC_GROUP: (Operation.READ, GROUP),
        ApiKey.HEARTBEAT: (Operation.READ, GROUP),
        ApiKey.LEAVE_GROUP: (Operation.READ, GROUP),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (Operation.READ, GROUP),
        ApiKey.OFFSET_COMMIT: (Operation.READ, GROUP),
        ApiKey.OFFSET_DELETE: (Operation.DELETE, GROUP),
        ApiKey.ELECT_LEADERS: (Operation.ALTER, CLUSTER),
        ApiKey.ENVELOPE: (Operation.CLUSTER_ACTION, CLUSTER),
        ApiKey.UPDATE_FEATURES: (Operation.ALTER, CLUSTER),
        ApiKey.UNREGISTER_BROKER: (Operation.ALTER, CLUSTER),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (Operation.ALTER, CLUSTER),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (Operation.DESCRIBE, CLUSTER),
        ApiKey.ALTER_REPLICA_LOG_DIRS: (Operation.ALTER, CLUSTER),
        ApiKey.DESCRIBE_LOG_DIRS: (Operation.DESCRIBE, CLUSTER),
        ApiKey.LIST_CONFIG_RESOURCES: (Operation.DESCRIBE_CONFIGS, CLUSTER),
        ApiKey.DESCRIBE_ACLS: (Operation.DESCRIBE, CLUSTER),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: (Operation.DESCRIBE_CONFIGS, CLUSTER),
        ApiKey.CREATE_ACLS: (Operation.ALTER, CLUSTER),
        ApiKey.DELETE_ACLS: (Operation.ALTER, CLUSTER),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (Operation.DESCRIBE, CLUSTER),
        ApiKey.ALTER_CLIENT_QUOTAS: (Operation.ALTER_CONFIGS, CLUSTER),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (Operation.ALTER, CLUSTER),
    }


@pytest.mark.parametrize("version", range(13))
def test_metadata_of_all_topics_leaves_out_what_is_denied(stage: Any, version: int) -> None:
    for name in ("open", "secret"):
        stage.topic(name)
    everything = metadata.MetadataRequest([] if version == 0 else None)
    assert {topic.name for topic in stage.ask(everything, version).topics} == {"open", "secret"}
    # What was kept for others is not given to who may see less, and the other way round.
    stage.authorizer = Denying((TOPIC, "secret"))
    seen = stage.ask(everything, version).topics
    assert [(topic.name, topic.error_code) for topic in seen] == [("open", 0)]
    stage.authorizer = None
    assert {topic.name for topic in stage.ask(everything, version).topics} == {"open", "secret"}


@pytest.mark.parametrize("stage", [{"auto.create.topics.enable": "true"}], indirect=True)
def test_a_topic_that_may_not_be_created_is_denied_and_not_unknown(stage: Any) -> None:
    stage.authorizer = Denying((CLUSTER, "kafka-cluster"))
    denial = stage.authorizer.is_allowed

    def deny_creation(principal: Any, host: str, operation: Operation, *resource: Any) -> bool:
        return operation is not Operation.CREATE and denial(principal, host, operation, *resource)

    stage.authorizer.is_allowed = deny_creation
    asked = [metadata.MetadataRequestTopic(name="absent")]
    (topic,) = stage.ask(metadata.MetadataRequest(asked), 12).topics
    assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    (topic,) = stage.ask(metadata.MetadataRequest(asked, False), 12).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.controller.calls == []


def test_what_is_allowed_beside_what_is_denied_is_done(stage: Any) -> None:
    for name in ("open", "secret"):
        stage.topic(name)
    stage.authorizer = Denying((TOPIC, "secret"))
    asked = [
        delete_records.DeleteRecordsTopic(name, [delete_records.DeleteRecordsPartition(0, 0)])
        for name in ("open", "secret")
    ]
    reply = stage.ask(delete_records.DeleteRecordsRequest(asked), 2)
    assert list(error_codes(reply)) == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert stage.authorizer.asked == [
        (Operation.DELETE, TOPIC, "open"),
        (Operation.DELETE, TOPIC, "secret"),
    ]


def test_topics_that_are_denied_are_refused_within_a_group(stage: Any) -> None:
    stage.topic("t")
    stage.authorizer = Denying((TOPIC, "t"))
    reply = stage.ask(offset_commit.OffsetCommitRequest("g", topics=[committed("t")]), 8)
    codes = set(error_codes(reply)) - {ErrorCode.NOT_COORDINATOR}
    assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_groups_that_are_denied_are_not_listed(stage: Any) -> None:
    protocol = SimpleNamespace(state_name="Empty", group_type="classic", protocol_type="consumer")
    for name in ("open", "secret"):
        group = SimpleNamespace(group_id=name, protocol=protocol, is_gone=False)
        stage.broker.group_coordinator.groups[name] = group
    stage.authorizer = Denying((CLUSTER, CLUSTER_NAME), (GROUP, "secret"))
    listed = stage.ask(list_groups.ListGroupsRequest(), 4).groups
    assert [group.group_id for group in listed] == ["open"]
    stage.authorizer = Denying((GROUP, "secret"))
    assert len(stage.ask(list_groups.ListGroupsRequest(), 4).groups) == 2


@pytest.mark.parametrize("version", range(6))
def test_who_may_not_use_a_transactional_id_gets_no_producer_id_for_it(
    stage: Any, version: int
) -> None:
    stage.authorizer = Denying((TRANSACTIONAL_ID, "x"))
    reply = stage.ask(init_producer_id.InitProducerIdRequest("x", 1000), version)
    assert reply.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert stage.authorizer.asked == [(Operation.WRITE, TRANSACTIONAL_ID, "x")]


def test_the_coordinator_of_a_transactional_id_is_told_to_who_may_know_the_id(stage: Any) -> None:
    stage.authorizer = Denying((TRANSACTIONAL_ID, "x"))
    reply = stage.ask(find_coordinator.FindCoordinatorRequest("x", 1), 3)
    assert reply.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert stage.authorizer.asked == [(Operation.DESCRIBE, TRANSACTIONAL_ID, "x")]


def test_a_denied_topic_or_group_keeps_a_transaction_from_what_is_beside_it(stage: Any) -> None:
    for name in ("open", "secret", "__consumer_offsets"):
        stage.topic(name)
    stage.authorizer = Denying((TOPIC, "secret"), (GROUP, "g"))
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[
            topic("open", [0]),
            topic("secret", [0]),
            topic("__consumer_offsets", [0]),
        ],
    )
    assert list(error_codes(stage.ask(request, 3))) == [
        0,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]
    offsets = add_offsets_to_txn.AddOffsetsToTxnRequest("x", 1, 0, "g")
    assert stage.ask(offsets, 4).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    in_transaction = stage.ask(offset_in_transaction(4), 4)
    assert list(error_codes(in_transaction)) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("version", [4, 5])
def test_many_transactions_at_once_are_for_who_may_act_for_the_cluster(
    stage: Any, version: int
) -> None:
    stage.authorizer = Denying((CLUSTER, CLUSTER_NAME))
    asked = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        "x", 1, 0, False, [add_partitions_to_txn.AddPartitionsToTxnTopic("t", [0])]
    )
    reply = stage.ask(add_partitions_to_txn.AddPartitionsToTxnRequest([asked]), version)
    assert reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert reply.results_by_transaction == []
    assert stage.authorizer.asked == [(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_who_may_act_for_the_cluster_is_told_where_epochs_ended(stage: Any, version: int) -> None:
    """Users of mirrors and checks that had that right before KIP-320 have no rules for topics."""
    stage.topic("t")
    stage.authorizer = Denying((TOPIC, "t"))
    make, _ = REQUESTS[ApiKey.OFFSET_FOR_LEADER_EPOCH]
    assert set(error_codes(stage.ask(make(version), version))) == {ErrorCode.NONE}
    assert stage.authorizer.asked == [(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)]


@pytest.mark.parametrize("version", [0, 1])
def test_a_topic_that_is_denied_is_told_before_what_a_heartbeat_lacks(
    stage: Any, version: int
) -> None:
    stage.topic("t")
    stage.authorizer = Denying((TOPIC, "t"))
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "", 0, subscribed_topic_names=["t"]
    )
    reply = stage.ask(request, version)
    assert reply.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_of_more_topics_than_a_member_may_have_nobody_is_asked(stage: Any) -> None:
    """A hundred thousand of them took the loop half a second."""
    stage.authorizer = Denying()
    names = [f"t{number}" for number in range(MEMBER_TOPICS_MAX + 1)]
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "m", 0, None, None, 1_000, names, topic_partitions=[]
    )
    assert stage.ask(request, 1).error_code == ErrorCode.INVALID_REQUEST
    assert {kind for _, kind, _ in stage.authorizer.asked} <= {GROUP}


def test_configs_of_a_group_are_the_groups(stage: Any) -> None:
    stage.authorizer = Denying(*EVERYTHING)
    requests = (
        describe_configs.DescribeConfigsRequest(
            [describe_configs.DescribeConfigsResource(32, "g", None)]
        ),
        alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(32, "g")]),
    )
    for request in requests:
        assert ErrorCode.GROUP_AUTHORIZATION_FAILED in set(error_codes(stage.ask(request, 2)))
    assert stage.controller.calls == []
