"""The calls of brokers to the controller: a request and a reply for each method.

The dicts are sent as msgpack over the session (`fairlead_broker.session`), with these keys.
`error_code` is a number of Kafka's protocol (`fairlead_model.session.refusals`), 0 for success, and
`error_message` is a sentence for the user or None. Topic ids are 16 raw bytes.

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
| update_features | UpdateFeaturesCall | nothing: all updates are done, or the call fails |
| unregister_broker | UnregisterBrokerCall | nothing: it is unregistered, or the call fails |
| create_acls | CreateAclsCall | CreateAclsReply |
| delete_acls | DeleteAclsCall | DeleteAclsReply |
| alter_credentials | AlterCredentialsCall | AlterCredentialsReply |
| alter_client_quotas | AlterClientQuotasCall | AlterClientQuotasReply |

Calls about rules, users and quotas name the user who asked a broker for them, for the controller's
log.

If a call fails as a whole, the caller gets an exception with the error's code. The broker receives
the deltas that its call causes before it receives the reply.
"""

from enum import IntEnum, StrEnum
from typing import Any, Final, NotRequired, TypedDict

PRODUCER_ID_BLOCK_SIZE: Final = 1000
"""Producer ids in a block for a broker; the ids of a block that a broker loses are never reused."""


class Method(StrEnum):
    """Names of the methods."""

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
    """Kafka's numbers of the resource types of configs."""

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
    """Partition → replicas; may be not empty only if both counts are -1."""
    configs: dict[str, str | None]


class MutationAsker(TypedDict):
    """The client that creates or deletes partitions, if a quota limits that (KIP-599).

    `is_strict`: the client knows THROTTLING_QUOTA_EXCEEDED. `burst_s` is the calling broker's
    controller.quota.window.num times controller.quota.window.size.seconds.
    """

    user: str
    client_id: str
    is_strict: bool
    burst_s: int


class CreateTopicsCall(TypedDict):
    """`default_*` are num.partitions and default.replication.factor of the calling broker."""

    topics: list[CreatableTopic]
    validate_only: bool
    default_partitions: int
    default_replication_factor: int
    internal: NotRequired[bool]
    """True if the broker itself asks for a topic with state of the cluster."""
    asker: NotRequired[MutationAsker | None]


class CreatedTopic(TypedDict):
    """The outcome for one topic; if it failed, counts are -1 and configs are empty."""

    name: str
    topic_id: bytes
    error_code: int
    error_message: str | None
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    """The config overrides of the topic."""


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
    """The outcome for one topic; a name or id that is not known is None or sixteen zero bytes."""

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
    """Topics that get more partitions."""

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
    """One operation; a full alteration (`incremental` is false) uses SET only."""

    name: str
    operation: int
    value: str | None


class AlterableResource(TypedDict):
    """A topic by name, a broker by its id as text, or all brokers by an empty name."""

    resource_type: int
    name: str
    alterations: list[ConfigAlteration]


class AlterConfigsCall(TypedDict):
    """If not incremental, configs that a resource's alterations do not name get their defaults."""

    resources: list[AlterableResource]
    validate_only: bool
    incremental: bool
    group_limits: NotRequired[dict[str, str]]
    """Limits for configs of groups: settings of the calling broker. If an older broker does not
    send them, Kafka's defaults are used."""


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
    """Ask for a block of producer ids. The session identifies the calling broker."""


class AllocateProducerIdsReply(TypedDict):
    """Only the calling broker ever uses first_producer_id … first_producer_id + count - 1."""

    first_producer_id: int
    count: int


class ControlledShutdownCall(TypedDict):
    """The calling broker is about to stop; the controller moves its leaders."""


class ControlledShutdownReply(TypedDict):
    """How many partitions the broker still leads or is yet to leave; it may stop at zero."""

    remaining_leaders: int


class ConfirmedRemoval(TypedDict):
    """A replica that was removed, with the leader epoch of the registration without it.

    Removals raise that epoch, so the confirmation of an earlier removal cannot confirm a later one.
    """

    topic_id: bytes
    index: int
    leader_epoch: int


class ConfirmDeletionsCall(TypedDict):
    """The calling broker has no more data of these topics, or of these partitions."""

    topic_ids: list[bytes]
    removals: NotRequired[list[ConfirmedRemoval]]


class ConfirmDeletionsReply(TypedDict):
    """An empty reply. Unknown ids are ignored, so a confirmation can be repeated."""


class IsrProposal(TypedDict):
    """The ISR that a partition's leader proposes, with the epochs that it knows."""

    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: list[list[int]]
    """[broker id, broker epoch] of each member, including the leader."""


class AlterPartitionCall(TypedDict):
    """Proposals of one leader (Kafka's AlterPartition).

    If `broker_epoch` is not the registered epoch, all are refused (STALE_BROKER_EPOCH).
    """

    broker_epoch: int
    partitions: list[IsrProposal]


class AlteredPartition(TypedDict):
    """The outcome of one proposal, and the partition after it.

    Codes, in the order of the checks: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    NOT_CONTROLLER (an epoch that this controller does not know yet), FENCED_LEADER_EPOCH,
    INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA. If the partition is unknown,
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
    """Elections on request; `partitions` None means all. `election_type` is an `ElectionType`."""

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
    """One entry per partition asked for. If all were, partitions without an election are absent."""

    partitions: list[ElectedPartition]


class ReassignablePartition(TypedDict):
    """The target replicas of a partition, preferred leader first; None cancels a reassignment."""

    topic: str
    index: int
    replicas: list[int] | None


class AlterReassignmentsCall(TypedDict):
    """Reassignments to start, to change or to cancel; each succeeds or fails by itself."""

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
    """Partitions whose reassignments to list; None means all."""

    partitions: list[ElectablePartition] | None


class OngoingReassignment(TypedDict):
    """A reassignment that runs, or waits; if it waits, `replicas` is its target."""

    topic: str
    index: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class ListReassignmentsReply(TypedDict):
    """Of the partitions asked for, those that are being reassigned."""

    partitions: list[OngoingReassignment]


class LocatedPartition(TypedDict):
    """A partition by the id of its topic."""

    topic_id: bytes
    index: int


class ReportOfflineCall(TypedDict):
    """Replicas that the calling broker cannot use any more: they lead nothing and leave the ISR.

    With `is_unclean` they may have lost acknowledged records (a failed fsync). Then even the last
    member leaves the ISR and the ELR, durably. A broker repeats the report if a new controller
    makes it leader of the replica all the same; a new start of the broker ends it.

    With `lacks_room` the report has another meaning: these are *all* its replicas that have no room
    for records, but still serve readers; an empty list means that all have room again. A controller
    that does not know this key takes the replicas for unusable until the broker restarts.

    Very many of them come in several calls. By topic id and index, each is about the replicas
    behind `after` and up to `until`, both of them places between calls. A controller that does not
    know these keys takes each call for all.
    """

    broker_epoch: int
    partitions: list[LocatedPartition]
    is_unclean: bool
    lacks_room: NotRequired[bool]
    after: NotRequired[LocatedPartition | None]
    until: NotRequired[LocatedPartition | None]


class ReportOfflineReply(TypedDict):
    """An empty reply: the report is durable."""


class LogEnd(TypedDict):
    """The end of one replica's log, while its partition has no leader."""

    topic_id: bytes
    index: int
    leader_epoch: int
    """Leader epoch of the registration that asks for the report; older reports are ignored."""
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
    """The new level of a feature; `upgrade_type` is a number of FeatureUpgradeType."""

    feature: str
    level: int
    upgrade_type: int


class UpdateFeaturesCall(TypedDict):
    """New levels of features: all are set, or none."""

    updates: list[FeatureUpdate]
    validate_only: bool


class UnregisterBrokerCall(TypedDict):
    """Remove a broker that will not come back; refused if the controller finds a reason not to."""

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
    """Filters, with fields in the order of `AclFilter`; rules that match any are removed."""

    filters: list[list[Any]]
    asked_by: str


class KeptAcl(TypedDict):
    """A rule, in its plain form, that matches a filter but is not removed, and the reason."""

    acl: list[Any]
    error_code: int
    error_message: str


class DeleteAclsReply(TypedDict):
    """For each filter, in the order of the call, the removed rules in their plain form."""

    removed: list[list[list[Any]]]
    kept: NotRequired[list[list[KeptAcl]]]
    """For each filter, the matching rules that remain. An older controller removes all."""


class CredentialDeletion(TypedDict):
    """A user's credential for one mechanism, to be removed."""

    user: str
    mechanism: int


class CredentialUpsertion(TypedDict):
    """A user's credential for one mechanism: the keys that verify, not the salted password."""

    user: str
    mechanism: int
    credential: list[Any]


class AlterCredentialsCall(TypedDict):
    """The changes of credentials; all valid ones are made together."""

    deletions: list[CredentialDeletion]
    upsertions: list[CredentialUpsertion]
    asked_by: str


class AlteredUser(TypedDict):
    """The outcome for one user."""

    user: str
    error_code: int
    error_message: str | None


class AlterCredentialsReply(TypedDict):
    """One entry per user, in the order in which the call first names them."""

    users: list[AlteredUser]


class QuotaAlteration(TypedDict):
    """A new value of one quota; None removes it."""

    key: str
    value: float | None


class QuotaEntityAlteration(TypedDict):
    """Changes for one entity, which is in the plain form of `fairlead_model.codec`."""

    entity: list[list[str | None]]
    alterations: list[QuotaAlteration]


class AlterClientQuotasCall(TypedDict):
    """The changes of quotas; all valid ones are made together."""

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
