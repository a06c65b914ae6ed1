"""What brokers ask of the controller: one request and one reply shape per method.

The dicts travel as msgpack over the session (`fairlead_broker.session`), keys as written here.
`error_code` is a number of Kafka's protocol (`fairlead_model.session.refusals`), 0 for success, and
`error_message` a sentence for the user or None. Topic ids are 16 raw bytes.

| method | request | reply |
|---|---|---|
| create_topics | CreateTopicsCall | CreateTopicsReply |
| delete_topics | DeleteTopicsCall | DeleteTopicsReply |
| create_partitions | CreatePartitionsCall | CreatePartitionsReply |
| alter_configs | AlterConfigsCall | AlterConfigsReply |
| allocate_producer_ids | AllocateProducerIdsCall | AllocateProducerIdsReply |
| controlled_shutdown | ControlledShutdownCall | ControlledShutdownReply |
| confirm_deletions | ConfirmDeletionsCall | ConfirmDeletionsReply |
| alter_partition | AlterPartitionCall | AlterPartitionReply |
| elect_leaders | ElectLeadersCall | ElectLeadersReply |
| alter_partition_reassignments | AlterReassignmentsCall | AlterReassignmentsReply |
| list_partition_reassignments | ListReassignmentsCall | ListReassignmentsReply |
| report_offline | ReportOfflineCall | ReportOfflineReply |
| report_logs | ReportLogsCall | ReportLogsReply |
| update_features | UpdateFeaturesCall | nothing: all updates hold, or the call fails |
| unregister_broker | UnregisterBrokerCall | nothing: it is unregistered, or the call fails |
| create_acls | CreateAclsCall | CreateAclsReply |
| delete_acls | DeleteAclsCall | DeleteAclsReply |
| alter_credentials | AlterCredentialsCall | AlterCredentialsReply |
| alter_client_quotas | AlterClientQuotasCall | AlterClientQuotasReply |

Calls about rules, users and quotas carry who asked a broker for them, for the controller's log.

A call that fails as a whole raises at the caller with the error's code. The deltas that a call
causes reach the calling broker before the reply does.
"""

from enum import IntEnum, StrEnum
from typing import Any, Final, NotRequired, TypedDict

PRODUCER_ID_BLOCK_SIZE: Final = 1000
"""Producer ids handed to a broker at once; a block that a broker loses is never reused."""


class Method(StrEnum):
    """Names of the calls."""

    CREATE_TOPICS = "create_topics"
    DELETE_TOPICS = "delete_topics"
    CREATE_PARTITIONS = "create_partitions"
    ALTER_CONFIGS = "alter_configs"
    ALLOCATE_PRODUCER_IDS = "allocate_producer_ids"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    CONFIRM_DELETIONS = "confirm_deletions"
    ALTER_PARTITION = "alter_partition"
    ELECT_LEADERS = "elect_leaders"
    ALTER_PARTITION_REASSIGNMENTS = "alter_partition_reassignments"
    LIST_PARTITION_REASSIGNMENTS = "list_partition_reassignments"
    REPORT_OFFLINE = "report_offline"
    REPORT_LOGS = "report_logs"
    UPDATE_FEATURES = "update_features"
    UNREGISTER_BROKER = "unregister_broker"
    CREATE_ACLS = "create_acls"
    DELETE_ACLS = "delete_acls"
    ALTER_CREDENTIALS = "alter_credentials"
    ALTER_CLIENT_QUOTAS = "alter_client_quotas"


class ResourceType(IntEnum):
    """Kafka's numbers for what a config belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


class AlterOperation(IntEnum):
    """Kafka's numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ElectionType(IntEnum):
    """Kafka's numbers of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


class FeatureUpgradeType(IntEnum):
    """Kafka's numbers of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class CreatableTopic(TypedDict):
    """One topic to create. `partitions` and `replication_factor` may be -1 (default)."""

    name: str
    partitions: int
    replication_factor: int
    assignments: dict[int, list[int]]
    """Partition → replicas; not empty only where both counts are -1."""
    configs: dict[str, str | None]


class MutationAsker(TypedDict):
    """Who makes or removes partitions, where a quota limits that (KIP-599).

    `is_strict`: the client knows THROTTLING_QUOTA_EXCEEDED. `burst_s` is the calling broker's
    controller.quota.window.num times controller.quota.window.size.seconds.
    """

    user: str
    client_id: str
    is_strict: bool
    burst_s: int


class CreateTopicsCall(TypedDict):
    """`default_*` are the calling broker's num.partitions and default.replication.factor."""

    topics: list[CreatableTopic]
    validate_only: bool
    default_partitions: int
    default_replication_factor: int
    internal: NotRequired[bool]
    """True when the broker itself asks, for a topic that holds the cluster's state."""
    asker: NotRequired[MutationAsker | None]


class CreatedTopic(TypedDict):
    """The outcome for one topic; counts are -1 and configs empty where it failed."""

    name: str
    topic_id: bytes
    error_code: int
    error_message: str | None
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    """The overrides that the topic has."""


class CreateTopicsReply(TypedDict):
    """One entry per topic asked for, in the order of the request."""

    topics: list[CreatedTopic]
    throttle_time_ms: NotRequired[int]


class DeletableTopic(TypedDict):
    """A topic by name or, if the name is None, by id."""

    name: str | None
    topic_id: bytes


class DeleteTopicsCall(TypedDict):
    """Topics to delete."""

    topics: list[DeletableTopic]
    asker: NotRequired[MutationAsker | None]


class DeletedTopic(TypedDict):
    """The outcome for one topic; what could not be found out is None or sixteen zero bytes."""

    name: str | None
    topic_id: bytes
    error_code: int
    error_message: str | None


class DeleteTopicsReply(TypedDict):
    """One entry per topic asked for, in the order of the request."""

    topics: list[DeletedTopic]
    throttle_time_ms: NotRequired[int]


class GrowableTopic(TypedDict):
    """`count` is the number of partitions after the call."""

    name: str
    count: int
    assignments: list[list[int]] | None
    """Replicas of each new partition, or None to let the controller place them."""


class CreatePartitionsCall(TypedDict):
    """Topics to grow."""

    topics: list[GrowableTopic]
    validate_only: bool
    asker: NotRequired[MutationAsker | None]


class GrownTopic(TypedDict):
    """The outcome for one topic."""

    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsReply(TypedDict):
    """One entry per topic asked for, in the order of the request."""

    topics: list[GrownTopic]
    throttle_time_ms: NotRequired[int]


class ConfigAlteration(TypedDict):
    """One operation; a full alteration (`incremental` false) uses SET only."""

    name: str
    operation: int
    value: str | None


class AlterableResource(TypedDict):
    """A topic by name, a broker by its id as text, or all brokers by the empty name."""

    resource_type: int
    name: str
    alterations: list[ConfigAlteration]


class AlterConfigsCall(TypedDict):
    """Not incremental: what a resource's alterations do not name goes back to its default."""

    resources: list[AlterableResource]
    validate_only: bool
    incremental: bool
    group_limits: NotRequired[dict[str, str]]
    """What configs of groups are checked against: settings of the broker that asks. Kafka's
    defaults where it is an older one."""


class AlteredResource(TypedDict):
    """The outcome for one resource."""

    resource_type: int
    name: str
    error_code: int
    error_message: str | None


class AlterConfigsReply(TypedDict):
    """One entry per resource asked for, in the order of the request."""

    resources: list[AlteredResource]


class AllocateProducerIdsCall(TypedDict):
    """Ask for a block of producer ids. The session says which broker asks."""


class AllocateProducerIdsReply(TypedDict):
    """Ids first_producer_id … first_producer_id + count - 1 belong to the caller for good."""

    first_producer_id: int
    count: int


class ControlledShutdownCall(TypedDict):
    """The calling broker is about to stop: move its leaders."""


class ControlledShutdownReply(TypedDict):
    """How many partitions the broker still leads; it may stop at zero."""

    remaining_leaders: int


class ConfirmedRemoval(TypedDict):
    """A replica that was removed, under the leader epoch of the record that says so.

    Removals raise that epoch, so an answer to one is not taken for the answer to a later one.
    """

    topic_id: bytes
    index: int
    leader_epoch: int


class ConfirmDeletionsCall(TypedDict):
    """The calling broker holds nothing of these topics, or of these partitions, any more."""

    topic_ids: list[bytes]
    removals: NotRequired[list[ConfirmedRemoval]]


class ConfirmDeletionsReply(TypedDict):
    """Nothing to say: unknown ids are ignored, so that a confirmation can be repeated."""


class IsrProposal(TypedDict):
    """The ISR that a partition's leader asks for; epochs are those it acts on."""

    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: list[list[int]]
    """[broker id, broker epoch] of each member, the leader among them."""


class AlterPartitionCall(TypedDict):
    """Proposals of one leader (Kafka's AlterPartition).

    If `broker_epoch` is not the registered one, all of them are refused (STALE_BROKER_EPOCH).
    """

    broker_epoch: int
    partitions: list[IsrProposal]


class AlteredPartition(TypedDict):
    """The outcome of one proposal, and the partition as it is afterwards.

    Codes, in the order of the checks: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    NOT_CONTROLLER (an epoch that this controller does not know yet), FENCED_LEADER_EPOCH,
    INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA. Where the partition is unknown,
    leader and epochs are -1 and the ISR is empty.
    """

    topic_id: bytes
    index: int
    error_code: int
    error_message: str | None
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: list[int]


class AlterPartitionReply(TypedDict):
    """One entry per proposal, in the order of the call."""

    partitions: list[AlteredPartition]


class ElectablePartition(TypedDict):
    """A partition by the name of its topic."""

    topic: str
    index: int


class ElectLeadersCall(TypedDict):
    """Elections by hand; `partitions` None means all. `election_type` is an `ElectionType`."""

    partitions: list[ElectablePartition] | None
    election_type: int


class ElectedPartition(TypedDict):
    """The outcome for one partition: success or an error code.

    The codes are ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
    ELIGIBLE_LEADERS_NOT_AVAILABLE and UNKNOWN_TOPIC_OR_PARTITION.
    """

    topic: str
    index: int
    error_code: int
    error_message: str | None


class ElectLeadersReply(TypedDict):
    """One entry per partition asked for; if all were, those that need nothing are left out."""

    partitions: list[ElectedPartition]


class ReassignablePartition(TypedDict):
    """Where a partition shall be, preferred leader first; None cancels its reassignment."""

    topic: str
    index: int
    replicas: list[int] | None


class AlterReassignmentsCall(TypedDict):
    """Reassignments that begin, change, or are cancelled, each by itself."""

    partitions: list[ReassignablePartition]
    allow_replication_factor_change: bool


class AlteredReassignment(TypedDict):
    """The outcome for one partition.

    Codes: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
    NO_REASSIGNMENT_IN_PROGRESS, POLICY_VIOLATION (the topic is declared by a resource, or the
    tables have no room).
    """

    topic: str
    index: int
    error_code: int
    error_message: str | None


class AlterReassignmentsReply(TypedDict):
    """One entry per partition asked for, in the order of the request."""

    partitions: list[AlteredReassignment]


class ListReassignmentsCall(TypedDict):
    """Which reassignments to list; None means all."""

    partitions: list[ElectablePartition] | None


class OngoingReassignment(TypedDict):
    """One that runs, or waits for its turn; then the replicas are those that it will have."""

    topic: str
    index: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class ListReassignmentsReply(TypedDict):
    """Those of the partitions asked for that are being reassigned."""

    partitions: list[OngoingReassignment]


class LocatedPartition(TypedDict):
    """A partition by the id of its topic."""

    topic_id: bytes
    index: int


class ReportOfflineCall(TypedDict):
    """Replicas that the calling broker cannot use any more: they lead nothing and leave the ISR.

    With `is_unclean` they may have lost acknowledged records (a failed fsync): even the last
    in-sync one then leaves ISR and eligible set, durably. A broker repeats the report when it is
    made leader of such a replica all the same (by a new controller); a new start ends it.

    With `lacks_room` the report means another thing: these are *all* its replicas that have no room
    for records, and that serve readers all the same; none means that all have room again. A
    controller that does not know the key takes them for unusable, until the broker starts anew.
    """

    broker_epoch: int
    partitions: list[LocatedPartition]
    is_unclean: bool
    lacks_room: NotRequired[bool]


class ReportOfflineReply(TypedDict):
    """Nothing to say: it is durable."""


class LogEnd(TypedDict):
    """How far one replica's log goes, while its partition has no leader."""

    topic_id: bytes
    index: int
    leader_epoch: int
    """The leader epoch of the partition's record that asks for it; older reports are ignored."""
    last_epoch: int
    """Leader epoch of the log's last batch, -1 for an empty log."""
    log_end_offset: int


class ReportLogsCall(TypedDict):
    """The log ends of partitions in the image that `awaits_recovery`, if the broker has their logs.

    A broker sends it when it first sees such a record, again for every new record, and to every new
    controller.
    """

    broker_epoch: int
    partitions: list[LogEnd]


class ReportLogsReply(TypedDict):
    """An empty reply.

    If the logs of all brokers that may hold acknowledged records are known, the replica with the
    longest one is elected.
    """


class FeatureUpdate(TypedDict):
    """The level that a feature is to have; `upgrade_type` is a number of FeatureUpgradeType."""

    feature: str
    level: int
    upgrade_type: int


class UpdateFeaturesCall(TypedDict):
    """Features that are to have other levels, all or none of them."""

    updates: list[FeatureUpdate]
    validate_only: bool


class UnregisterBrokerCall(TypedDict):
    """A broker that is gone for good; refused while anything speaks against that."""

    broker_id: int


class CreateAclsCall(TypedDict):
    """Rules to add, each in the plain form of `fairlead_model.codec`."""

    acls: list[list[Any]]
    asked_by: str


class CreatedAcl(TypedDict):
    """The outcome for one rule."""

    error_code: int
    error_message: str | None


class CreateAclsReply(TypedDict):
    """One entry per rule, in the order of the request."""

    acls: list[CreatedAcl]


class DeleteAclsCall(TypedDict):
    """Filters, in the order of the fields of `AclFilter`; what any of them selects goes."""

    filters: list[list[Any]]
    asked_by: str


class KeptAcl(TypedDict):
    """A rule, in its plain form, that a filter selects and that stays; and why."""

    acl: list[Any]
    error_code: int
    error_message: str


class DeleteAclsReply(TypedDict):
    """For each filter, in their order, the rules that it removed, in their plain form."""

    removed: list[list[list[Any]]]
    kept: NotRequired[list[list[KeptAcl]]]
    """For each filter, what stays of its rules. An older controller removes all."""


class CredentialDeletion(TypedDict):
    """A user's credential for one mechanism, to be removed."""

    user: str
    mechanism: int


class CredentialUpsertion(TypedDict):
    """A user's credential for one mechanism: keys that verify, never the salted password."""

    user: str
    mechanism: int
    credential: list[Any]


class AlterCredentialsCall(TypedDict):
    """What changes, all of it that is valid at once."""

    deletions: list[CredentialDeletion]
    upsertions: list[CredentialUpsertion]
    asked_by: str


class AlteredUser(TypedDict):
    """The outcome for one user."""

    user: str
    error_code: int
    error_message: str | None


class AlterCredentialsReply(TypedDict):
    """One entry per user, in the order in which the call names them first."""

    users: list[AlteredUser]


class QuotaAlteration(TypedDict):
    """Another value of one quota; None removes it."""

    key: str
    value: float | None


class QuotaEntityAlteration(TypedDict):
    """What changes for one entity, which is in the plain form of `fairlead_model.codec`."""

    entity: list[list[str | None]]
    alterations: list[QuotaAlteration]


class AlterClientQuotasCall(TypedDict):
    """What changes, all of it that is valid at once."""

    entries: list[QuotaEntityAlteration]
    validate_only: bool
    asked_by: str


class AlteredQuotas(TypedDict):
    """The outcome for one entity."""

    error_code: int
    error_message: str | None


class AlterClientQuotasReply(TypedDict):
    """One outcome per entry, in the order of the call."""

    entries: list[AlteredQuotas]
