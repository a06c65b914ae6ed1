"""What brokers ask of the controller: one request and one reply shape per method.

The dicts travel as msgpack over the session (`fairlead_broker.session`), keys as written here.
`error_code` is a number of Kafka's protocol (`fairlead_model.refusals`), 0 for success, and
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
| report_offline | ReportOfflineCall | ReportOfflineReply |
| report_logs | ReportLogsCall | ReportLogsReply |

A call that fails as a whole raises at the caller with the error's code. The deltas that a call
causes reach the calling broker before the reply does.
"""

from enum import IntEnum, StrEnum
from typing import Final, NotRequired, TypedDict

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
    REPORT_OFFLINE = "report_offline"
    REPORT_LOGS = "report_logs"


class ResourceType(IntEnum):
    """Kafka's numbers for what a config belongs to."""

    TOPIC = 2
    BROKER = 4


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


class CreatableTopic(TypedDict):
    """One topic to create. `partitions` and `replication_factor` may be -1 (default)."""

    name: str
    partitions: int
    replication_factor: int
    assignments: dict[int, list[int]]
    """Partition → replicas; not empty only where both counts are -1."""
    configs: dict[str, str | None]


class CreateTopicsCall(TypedDict):
    """`default_*` are the calling broker's num.partitions and default.replication.factor."""

    topics: list[CreatableTopic]
    validate_only: bool
    default_partitions: int
    default_replication_factor: int
    internal: NotRequired[bool]
    """True when the broker itself asks, for a topic that holds the cluster's state."""


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


class DeletableTopic(TypedDict):
    """A topic by name or, if the name is None, by id."""

    name: str | None
    topic_id: bytes


class DeleteTopicsCall(TypedDict):
    """Topics to delete."""

    topics: list[DeletableTopic]


class DeletedTopic(TypedDict):
    """The outcome for one topic; what could not be found out is None or sixteen zero bytes."""

    name: str | None
    topic_id: bytes
    error_code: int
    error_message: str | None


class DeleteTopicsReply(TypedDict):
    """One entry per topic asked for, in the order of the request."""

    topics: list[DeletedTopic]


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


class GrownTopic(TypedDict):
    """The outcome for one topic."""

    name: str
    error_code: int
    error_message: str | None


class CreatePartitionsReply(TypedDict):
    """One entry per topic asked for, in the order of the request."""

    topics: list[GrownTopic]


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


class ConfirmDeletionsCall(TypedDict):
    """The calling broker holds nothing of these topics any more."""

    topic_ids: list[bytes]


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
    """Proposals of one leader. Another `broker_epoch` than the registered one refuses them all
    (STALE_BROKER_EPOCH)."""

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
    """The outcome for one partition: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
    ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION or success."""

    topic: str
    index: int
    error_code: int
    error_message: str | None


class ElectLeadersReply(TypedDict):
    """One entry per partition asked for; if all were, those that need nothing are left out."""

    partitions: list[ElectedPartition]


class LocatedPartition(TypedDict):
    """A partition by the id of its topic."""

    topic_id: bytes
    index: int


class ReportOfflineCall(TypedDict):
    """Replicas that the calling broker cannot use any more: they lead nothing and leave the ISR.

    With `is_unclean` they may have lost acknowledged records (a failed fsync): even the last
    in-sync one then leaves ISR and eligible set, durably. A broker repeats the report when it is
    made leader of such a replica all the same (by a new controller); a new start ends it.
    """

    broker_epoch: int
    partitions: list[LocatedPartition]
    is_unclean: bool


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
    """For each partition in the image that `awaits_recovery` and that the broker has a log of:
    sent when the broker first sees such a record, again for every new one and to every new
    controller."""

    broker_epoch: int
    partitions: list[LogEnd]


class ReportLogsReply(TypedDict):
    """Nothing to say: if the logs of all who may hold acknowledged records are known, the fullest
    one leads."""
