"""ConsumerGroup: a group of consumers to watch, and a reset of its offsets that happens once."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from fairlead_model.ids import TOPIC_NAME_LENGTH_MAX
from fairlead_model.resources.failover_drill import CLUSTER_NAME
from fairlead_model.resources.resource_reading import ManifestForm, RootRule, read_manifest
from fairlead_model.resources.resource_shape import Bound, Rule, Text, Whole
from fairlead_model.resources.topic_manifest import PARTITIONS_MAX
from fairlead_operator.resources.condition import COUNT, Conditions, ObservedGeneration
from fairlead_operator.resources.definition import AGE, Column, ResourceDefinition

CONSUMER_GROUP_KIND: Final = "ConsumerGroup"
ResetTarget: TypeAlias = Literal["Earliest", "Latest", "Timestamp", "Offset", "ShiftBy"]
ResetPhase: TypeAlias = Literal["Waiting", "Committing", "Done", "Failed"]

GROUP_ID_LENGTH_MAX: Final = 255
RESET_ID_LENGTH_MAX: Final = 63
RESET_TOPICS_MAX: Final = 64
RESET_TOPIC_PARTITIONS_MAX: Final = 1_000
RESET_PARTITIONS_MAX: Final = 10_000
"""Partitions that one reset may set: the resource holds their targets until it is done."""
PAST_RESETS_MAX: Final = 32
MEMBERS_SHOWN_MAX: Final = 20
TOPICS_SHOWN_MAX: Final = 50
REFRESH_S: Final = 30
_OFFSET_MAX: Final = 2**53
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSETS_LENGTH_MAX: Final = 262_144
_TOPIC_NAME: Final = Text(
    maximum=TOPIC_NAME_LENGTH_MAX,
    minimum=1,
    pattern="[a-zA-Z0-9._-]+",
    hint="a topic's name has letters, digits, '.', '_' and '-' only",
)
_CLIENT_TEXT: Final = Text(255)
"""Texts that clients report; longer texts are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTopic:
    """A topic whose offsets are set."""

    name: Annotated[str, "Name of the topic for Kafka clients.", _TOPIC_NAME]
    partitions: Annotated[
        tuple[Annotated[int, Whole(0, PARTITIONS_MAX - 1)], ...],
        "Numbers of partitions. Default: all.",
        Bound(RESET_TOPIC_PARTITIONS_MAX),
    ] = ()


def _takes(kind: str, name: str, attribute: str) -> Rule:
    return Rule(
        cel=f"(self.to == '{kind}') == has(self.{name})",
        message=f"the target {kind} needs the field {name}, and no other target takes it",
        field=name,
        holds=lambda reset: (reset.to == kind) == (getattr(reset, attribute) is not None),
    )


def _is_moment(text: str | None) -> bool:
    try:
        return text is None or moment_ms(text) >= 0
    except ValueError:
        return False


def moment_ms(text: str) -> int:
    """Return a time in Kafka's form, milliseconds since 1970; ValueError without a time zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """Where the group continues to read."""

    RULES: ClassVar = (
        _takes("Timestamp", "timestamp", "timestamp"),
        _takes("Offset", "offset", "offset"),
        _takes("ShiftBy", "shiftBy", "shift_by"),
        Rule(
            cel="!has(self.timestamp) || self.timestamp >= timestamp('1970-01-01T00:00:00Z')",
            message="write a time since 1970 with its time zone, such as 2026-11-21T09:00:00Z",
            field="timestamp",
            holds=lambda reset: _is_moment(reset.timestamp),
        ),
        Rule(
            cel="self.id != oldSelf.id || self == oldSelf",
            message="a reset is carried out once and cannot be changed: give it a new id",
            field="id",
            holds_change=lambda old, new: new.id != old.id or new == old,
        ),
    )

    id: Annotated[
        str,
        "Name of this reset, of your choice. Each id is carried out once; a new id is a new reset.",
        Text(
            maximum=RESET_ID_LENGTH_MAX,
            minimum=1,
            pattern="[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?",
            hint="an id has letters, digits, '.', '_' and '-', and begins and ends with a letter "
            "or digit",
        ),
    ]
    to: Annotated[
        ResetTarget,
        "Earliest: the first record of the log. Latest: the end of the log, so that the group "
        "reads only new records. Timestamp: the first record of that time or later. Offset: "
        "that offset. ShiftBy: so many records forward (back if negative) from the group's "
        "offset. An offset outside the log is moved to its nearer end.",
    ]
    timestamp: Annotated[
        str | None, "For Timestamp: a time with a time zone.", Text(64, format="date-time")
    ] = None
    offset: Annotated[int | None, "For Offset: the offset.", Whole(0, _OFFSET_MAX)] = None
    shift_by: Annotated[
        int | None, "For ShiftBy: how many records.", Whole(-_OFFSET_MAX, _OFFSET_MAX)
    ] = None
    topics: Annotated[
        tuple[ResetTopic, ...],
        "Topics to set. Default: every partition for which the group has committed an offset.",
        Bound(RESET_TOPICS_MAX, key="name"),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSpec:
    """A consumer group, which may not exist yet: this resource watches it and never creates it."""

    RULES: ClassVar = (
        Rule(
            cel="!has(oldSelf.clusterName) || !has(self.clusterName) || "
            "self.clusterName == oldSelf.clusterName",
            message="a ConsumerGroup cannot move to another cluster: make a new one for that group",
            field="clusterName",
            holds_change=lambda old, new: (
                None in {old.cluster_name, new.cluster_name} or old.cluster_name == new.cluster_name
            ),
        ),
    )

    cluster_name: Annotated[
        str | None,
        "LogCluster of the same namespace that the group reads from; it cannot be changed. "
        "Default: the only LogCluster of the namespace; the operator then writes its name here.",
        CLUSTER_NAME,
    ] = None
    group_id: Annotated[
        str | None,
        "The group's id, if it is not metadata.name. It cannot be changed.",
        Text(GROUP_ID_LENGTH_MAX, 1),
    ] = None
    paused: Annotated[
        bool,
        "Leave the group's offsets as they are: a reset waits. The operator still updates "
        "the status.",
    ] = False
    offset_reset: Annotated[
        OffsetReset | None,
        "Sets the group's offsets once. It waits until the group has no members. After that "
        "the operator does not change the offsets again, whether you remove this field or not.",
    ] = None
    refresh_seconds: Annotated[
        int,
        "How often the operator looks at the group, in seconds; it writes the lag to the "
        "status no more often.",
        Whole(5, 3_600),
    ] = REFRESH_S

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "ConsumerGroupSpec":
        """Read a ConsumerGroup; ManifestError lists all its problems."""
        return read_manifest(manifest, ManifestForm(CONSUMER_GROUP_KIND, cls, _ROOT_RULES))


_ID: Final = "(has(self.spec.groupId) ? self.spec.groupId : self.metadata.name)"
_OLD_ID: Final = "(has(oldSelf.spec.groupId) ? oldSelf.spec.groupId : oldSelf.metadata.name)"
_ROOT_RULES: Final[tuple[RootRule[ConsumerGroupSpec], ...]] = (
    RootRule(
        cel=f"{_ID} == {_OLD_ID}",
        message="groupId cannot be changed: make a new ConsumerGroup for the other group",
        field="spec.groupId",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A consumer in the group."""

    client_id: Annotated[str, "Client id.", _CLIENT_TEXT] = ""
    member_id: Annotated[str, "Member id.", _CLIENT_TEXT] = ""
    instance_id: Annotated[str, "group.instance.id of a static member.", _CLIENT_TEXT] = ""
    host: Annotated[str, "Address that the member connects from.", _CLIENT_TEXT] = ""
    partitions: Annotated[int, "Partitions assigned to the member.", COUNT] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTopic:
    """What the group has still to read of a topic."""

    name: Annotated[str, "Name of the topic.", Text(TOPIC_NAME_LENGTH_MAX)]
    partitions: Annotated[int, "Partitions with a committed offset.", COUNT] = 0
    lag: Annotated[int, "Records behind the end, all partitions together.", COUNT] = 0
    lag_max: Annotated[int, "Records behind the end, the worst partition.", COUNT] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffsets:
    """Offsets of a topic's partitions, as PARTITION:OFFSET with commas between."""

    name: Annotated[str, "Name of the topic.", Text(TOPIC_NAME_LENGTH_MAX)]
    offsets: Annotated[str, "New offsets.", Text(_OFFSETS_LENGTH_MAX)] = ""
    before: Annotated[
        str,
        "Offsets that were committed before, with which a mistaken reset can be undone; a "
        "partition without an offset is left out.",
        Text(_OFFSETS_LENGTH_MAX),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReset:
    """The reset that is going on or was the last one."""

    id: Annotated[str, "Id of the reset.", Text(RESET_ID_LENGTH_MAX)]
    phase: Annotated[
        ResetPhase,
        "Waiting: the operator waits until the group is empty. Committing: the new offsets are "
        "determined and being committed. Done and Failed are final.",
    ]
    at: Annotated[str, "When the present phase began.", Text(64, format="date-time")]
    reason: Annotated[str, "Why the reset failed, in one word for programs.", Text(128)] = ""
    message: Annotated[str, "State of the reset, in words for people.", Text(1024)] = ""
    partitions: Annotated[int | None, "Partitions whose offsets the reset sets.", COUNT] = None
    topics: Annotated[
        tuple[TopicOffsets, ...],
        "Offsets that the reset sets, by topic.",
        Bound(RESET_PARTITIONS_MAX, key="name"),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupStatus:
    """The group as its coordinator shows it."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None
    group_id: Annotated[str, "The group's id.", Text(GROUP_ID_LENGTH_MAX)] = ""
    state: Annotated[
        str,
        "Kafka's name of the group's state; Assigning is shown as Reconciling. Absent if there "
        "is no such group.",
        Text(64),
    ] = ""
    protocol: Annotated[str, "Classic or Consumer (KIP-848).", Text(64)] = ""
    assignor: Annotated[str, "Assignor that gives partitions to the members.", _CLIENT_TEXT] = ""
    coordinator: Annotated[int | None, "Id of the broker that coordinates the group.", COUNT] = None
    members: Annotated[int | None, "Consumers in the group.", COUNT] = None
    member_list: Annotated[
        tuple[GroupMember, ...],
        f"The first {MEMBERS_SHOWN_MAX} consumers by client id.",
        Bound(MEMBERS_SHOWN_MAX),
    ] = ()
    lag: Annotated[
        int | None, "Records that the group has still to read, all partitions together.", COUNT
    ] = None
    lag_max: Annotated[
        int | None, "Records that the group has still to read, on its worst partition.", COUNT
    ] = None
    committed_partitions: Annotated[
        int | None, "Partitions with a committed offset; lag counts these partitions.", COUNT
    ] = None
    uncommitted_partitions: Annotated[
        int | None,
        "Partitions that members read and that have no committed offset yet; lag does not "
        "count them.",
        COUNT,
    ] = None
    topics: Annotated[
        tuple[GroupTopic, ...],
        f"Lag by topic: the {TOPICS_SHOWN_MAX} topics with the largest lag.",
        Bound(TOPICS_SHOWN_MAX, key="name"),
    ] = ()
    last_reset: Annotated[LastReset | None, "State of the offset reset."] = None
    past_resets: Annotated[
        tuple[Annotated[str, Text(RESET_ID_LENGTH_MAX)], ...],
        "Ids of resets that have ended and are not carried out again, the latest last.",
        Bound(PAST_RESETS_MAX),
    ] = ()


CONSUMER_GROUP: Final = ResourceDefinition(
    kind=CONSUMER_GROUP_KIND,
    plural="consumergroups",
    short_names=("cgroup",),
    description="A consumer group: its state, members and lag, and a reset of its offsets.",
    spec=ConsumerGroupSpec,
    status=ConsumerGroupStatus,
    root_rules=_ROOT_RULES,
    columns=(
        Column("Group", ".status.groupId"),
        Column("State", ".status.state"),
        Column("Members", ".status.members", "integer"),
        Column("Lag", ".status.lag", "integer", "Records behind the end"),
        Column("Reset", ".status.lastReset.phase"),
        AGE,
        Column("Cluster", ".spec.clusterName", is_wide=True),
        Column("Max Lag", ".status.lagMax", "integer", is_wide=True),
        Column("Assignor", ".status.assignor", is_wide=True),
        Column("Coordinator", ".status.coordinator", "integer", is_wide=True),
        Column("Reset Id", ".status.lastReset.id", is_wide=True),
    ),
    example="""\
apiVersion: fairlead.io/v1alpha1
kind: ConsumerGroup
metadata:
  name: billing
spec:
  clusterName: demo
  groupId: shop.Billing # default: metadata.name
  refreshSeconds: 15
  offsetReset:
    id: after-bug-4711 # carried out once, when the group is empty
    to: Timestamp
    timestamp: "2026-11-20T06:00:00Z"
    topics:
      - name: shop.Orders
""",
)
