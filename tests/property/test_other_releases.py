"""What a release one older or one newer says, in any shape that the rules allow, is understood.

The rules are at the top of `fairlead_model.session.session_protocol` and of the controller's
`lines`.
"""

import json
from typing import TYPE_CHECKING, Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from fairlead_broker.session.image_follower import ImageFollower, Publication
from fairlead_controller.decisions.state import CountersChanged, Intent
from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.surplus import Surplus
from fairlead_controller.sessions.call_parsing import parse_call
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.codec import (
    decode_registration,
    encode_acl,
    encode_changes,
    encode_registration,
)
from fairlead_model.delta import (
    BrokerChanged,
    BrokerConfigsChanged,
    Change,
    FeaturesChanged,
    GroupConfigsChanged,
    PartitionChanged,
    TopicChanged,
)
from fairlead_model.features import UNSAID_FEATURES, FeatureRange, FinalizedFeatures
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_model.session.calls import Method
from fairlead_model.session.session_messages import pack_message, unpack_message
from fairlead_model.topic import TopicHeader, TopicState

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC_ID = TopicId(b"t" * 16)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)
NAMES = st.text("abcdefgh", min_size=1, max_size=8).map("next_{}".format)
"""Fields of the next release: none of today's has such a name."""
MORE_FIELDS = st.dictionaries(NAMES, ANYTHING, min_size=1, max_size=3)
AT_THE_END = st.lists(ANYTHING, min_size=1, max_size=3)
IDS = st.integers(0, 9)
EPOCHS = st.integers(0, 2**31 - 1)
TEXTS = st.text(max_size=8)

registrations = st.builds(
    BrokerRegistration,
    broker_id=IDS,
    broker_epoch=EPOCHS,
    endpoints=st.lists(
        st.builds(Endpoint, TEXTS, TEXTS, st.integers(0, 65_535), st.booleans()), max_size=3
    ).map(tuple),
    host_name=TEXTS,
    rack=st.none() | TEXTS,
    fenced=st.booleans(),
    in_controlled_shutdown=st.booleans(),
    directory_id=TEXTS,
    start_id=TEXTS,
    boot_id=TEXTS,
    pod_uid=TEXTS,
    is_clean=st.booleans(),
    previous_broker_epoch=EPOCHS,
    is_recovered_whole=st.booleans(),
    min_insync_replicas=st.integers(1, 9),
    features=st.lists(
        st.builds(FeatureRange, TEXTS, st.integers(0, 3), st.integers(3, 9)), max_size=2
    ).map(tuple),
)
headers = st.builds(
    TopicHeader,
    st.just("t"),
    st.just(TOPIC_ID),
    st.just(1),
    st.sampled_from([TopicState.MAKING, TopicState.LIVE]),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
)
partitions = st.lists(IDS, min_size=1, max_size=4, unique=True).map(
    lambda ids: PartitionRegistration(tuple(ids), tuple(ids), ids[0])
)
finalized = st.builds(
    FinalizedFeatures, EPOCHS, st.dictionaries(TEXTS, st.integers(0, 9), max_size=3), TEXTS
)
configs = st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=3)


@st.composite
def images(draw: st.DrawFn) -> tuple[Change, ...]:
    """The changes that make an image of one topic."""
    return (
        FeaturesChanged(draw(finalized)),
        BrokerChanged(draw(registrations)),
        BrokerConfigsChanged("", draw(configs)),
        GroupConfigsChanged("g", draw(configs)),
        TopicChanged(draw(headers)),
        PartitionChanged(TOPIC_ID, 0, draw(partitions)),
    )


def follow(message: dict[str, Any], skipped: list[str]) -> Publication:
    follower = ImageFollower("c", skipped.append)
    publication = follower.receive(unpack_message(pack_message(**message)))
    assert publication is not None
    return publication


def changes_message(changes: list[list[Any]], **more: Any) -> dict[str, Any]:
    flags = {"is_image": True, "is_last": True}
    return {"message_type": "changes", "position": [1, 0], "changes": changes, **flags, **more}


@given(images(), st.data())
def test_a_broker_understands_the_image_of_a_newer_controller(
    image: tuple[Change, ...], data: st.DataObject
) -> None:
    plain = encode_changes(image)
    newer = [[*change, *data.draw(AT_THE_END)] for change in plain]
    for place in (3, 16):
        newer[1][place] = [[*each, *data.draw(AT_THE_END)] for each in newer[1][place]]
    place = data.draw(st.integers(0, len(newer)))
    newer.insert(place, ["?next", *data.draw(AT_THE_END)])
    skipped: list[str] = []
    message = changes_message(newer, **data.draw(MORE_FIELDS))
    message["position"] += data.draw(AT_THE_END)
    assert follow(message, skipped) == follow(changes_message(plain), [])
    assert skipped == ["?next"]


@given(images(), st.data())
def test_a_broker_understands_the_image_of_an_older_controller(
    image: tuple[Change, ...], data: st.DataObject
) -> None:
    """Cut short anywhere, what is left is read as it was meant, and the rest is the default."""
    whole = [list(change) for change in encode_changes(image)]
    defaults = encode_changes(
        (
            BrokerChanged(BrokerRegistration(0, features=UNSAID_FEATURES)),
            TopicChanged(TopicHeader("", TOPIC_ID, 1)),
            PartitionChanged(TOPIC_ID, 0, PartitionRegistration((0,), (0,))),
        )
    )
    required = {"b": 4, "t": 5, "p": 9}
    older, filled = [], []
    for change in whole:
        least = required.get(change[0])
        if least is None:
            older.append(change)
            filled.append(change)
            continue
        length = data.draw(st.integers(least, len(change)))
        (default,) = (each for each in defaults if each[0] == change[0])
        older.append(change[:length])
        filled.append([*change[:length], *default[length:]])
    assert follow(changes_message(older), []) == follow(changes_message(filled), [])


@given(registrations, AT_THE_END)
def test_a_controller_understands_the_registration_of_a_newer_broker(
    registration: BrokerRegistration, more: list[Any]
) -> None:
    packed = msgpack.packb([*encode_registration(registration), *more])
    assert decode_registration(msgpack.unpackb(packed, strict_map_key=False)) == registration


RULE = encode_acl(
    AclBinding(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        "t",
        "User:a",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
)
CALLS: dict[Method, dict[str, Any]] = {
    Method.CREATE_TOPICS: {
        "topics": [
            {
                "name": "t",
                "partitions": 1,
                "replication_factor": 1,
                "assignments": {},
                "configs": {},
            }
        ],
        "validate_only": False,
        "default_partitions": 1,
        "default_replication_factor": 1,
    },
    Method.DELETE_TOPICS: {
        "topics": [{"name": "t", "topic_id": bytes(16)}],
        "asker": {"user": "a", "client_id": "", "is_strict": True, "burst_s": 11},
    },
    Method.CREATE_PARTITIONS: {
        "topics": [{"name": "t", "count": 3, "assignments": None}],
        "validate_only": False,
    },
    Method.ALTER_CONFIGS: {
        "resources": [
            {
                "resource_type": 2,
                "name": "t",
                "alterations": [{"name": "a", "operation": 0, "value": "1"}],
            }
        ],
        "validate_only": False,
        "incremental": True,
    },
    Method.ALLOCATE_PRODUCER_IDS: {},
    Method.CONTROLLED_SHUTDOWN: {"broker_epoch": 1},
    Method.CONFIRM_DELETIONS: {"topic_ids": [TOPIC_ID]},
    Method.ALTER_PARTITION: {
        "broker_epoch": 1,
        "partitions": [
            {
                "topic_id": TOPIC_ID,
                "index": 0,
                "leader_epoch": 1,
                "partition_epoch": 1,
                "isr": [[0, 1]],
            }
        ],
    },
    Method.ELECT_LEADERS: {"partitions": [{"topic": "t", "index": 0}], "election_type": 0},
    Method.REPORT_OFFLINE: {
        "broker_epoch": 1,
        "partitions": [{"topic_id": TOPIC_ID, "index": 0}],
        "is_unclean": True,
    },
    Method.REPORT_LOGS: {
        "broker_epoch": 1,
        "partitions": [
            {
                "topic_id": TOPIC_ID,
                "index": 0,
                "leader_epoch": 1,
                "last_epoch": 0,
                "log_end_offset": 1,
            }
        ],
    },
    Method.UPDATE_FEATURES: {
        "updates": [{"feature": "f", "level": 1, "upgrade_type": 1}],
        "validate_only": False,
    },
    Method.UNREGISTER_BROKER: {"broker_id": 2},
    Method.ALTER_PARTITION_REASSIGNMENTS: {
        "partitions": [{"topic": "t", "index": 0, "replicas": [1, 2]}],
        "allow_replication_factor_change": True,
    },
    Method.LIST_PARTITION_REASSIGNMENTS: {"partitions": [{"topic": "t", "index": 0}]},
    Method.CREATE_ACLS: {"acls": [RULE], "asked_by": "User:a"},
    Method.DELETE_ACLS: {"filters": [RULE], "asked_by": "User:a"},
    Method.ALTER_CREDENTIALS: {
        "deletions": [{"user": "b", "mechanism": 1}],
        "upsertions": [
            {
                "user": "a",
                "mechanism": 2,
                "credential": [4096, b"a salt of a test", bytes(64), bytes(64)],
            }
        ],
        "asked_by": "User:a",
    },
    Method.ALTER_CLIENT_QUOTAS: {
        "entries": [
            {
                "entity": [["user", "a"], ["client-id", None]],
                "alterations": [{"key": "request_percentage", "value": 0.5}],
            }
        ],
        "validate_only": False,
        "asked_by": "User:a",
    },
}
"""A call of each method; a method without one fails the next test."""


def with_more(value: Any, data: st.DataObject) -> Any:
    """Add fields to every record of a call; mappings from names to values are no records."""
    if isinstance(value, list):
        return [with_more(item, data) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {"configs", "assignments"}
    grown = {key: item if key in kept else with_more(item, data) for key, item in value.items()}
    return grown | data.draw(MORE_FIELDS)


@given(st.sampled_from(list(Method)), st.data())
def test_a_controller_understands_the_calls_of_a_newer_broker(
    method: Method, data: st.DataObject
) -> None:
    plain = CALLS[method]
    newer = with_more(plain, data)
    assert parse_call(method, newer, broker_id=0, broker_epoch=1) == parse_call(
        method, plain, broker_id=0, broker_epoch=1
    )


LINES: dict[str, tuple[Any, Any]] = {
    "broker/1": (registrations.map(lines.broker_line), lines.build_broker),
    "counters": (
        st.builds(CountersChanged, EPOCHS, EPOCHS).map(lines.counters_line),
        lines.build_counters,
    ),
    "features": (finalized.map(lines.features_line), lines.build_features),
    "intent/a": (
        st.builds(Intent, TEXTS, TEXTS, EPOCHS).map(lines.intent_line),
        lines.build_intent,
    ),
    "topic/x": (headers.map(lines.header_line), lines.header_builder(TOPIC_ID)),
    "partition/x/0": (partitions.map(lines.partition_line), lines.build_partition),
}


@given(st.sampled_from(list(LINES)), st.data())
def test_fields_of_a_newer_release_survive_that_this_one_rewrites_their_line(
    key: str, data: st.DataObject
) -> None:
    """R29."""
    records, build = LINES[key]
    old, rewritten = data.draw(records), data.draw(records)
    more = data.draw(MORE_FIELDS)
    newer = lines.dump_line({**lines.read_line(old), **more})
    value, unknown = lines.parse_line_of_any_release(key, newer, build)
    assert value == lines.parse_line(key, old, build)
    assert unknown == more
    surplus = Surplus()
    surplus.note(key, unknown)
    line = surplus.added_to(key, rewritten)
    assert json.loads(line or "") == {**json.loads(rewritten), **more}


@given(st.sampled_from(list(LINES)), st.data())
def test_lines_of_an_older_release_are_read_with_defaults(key: str, data: st.DataObject) -> None:
    records, build = LINES[key]
    required = {
        "broker/1": {"id", "epoch"},
        "counters": {"next_broker_epoch", "next_producer_id"},
        "features": {"epoch", "levels"},
        "intent/a": {"action", "target", "at_ms"},
        "topic/x": {"name", "partitions", "state"},
        "partition/x/0": {"replicas", "isr", "leader", "leader_epoch", "partition_epoch"},
    }[key]
    record = lines.read_line(data.draw(records))
    removable = sorted(record.keys() - required)
    missing = data.draw(st.sets(st.sampled_from(removable))) if removable else set()
    older = {name: value for name, value in record.items() if name not in missing}
    value, unknown = lines.parse_line_of_any_release(key, lines.dump_line(older), build)
    assert unknown == {}
    writers: dict[str, Callable[[Any], str]] = {
        "broker/1": lines.broker_line,
        "counters": lines.counters_line,
        "features": lines.features_line,
        "intent/a": lines.intent_line,
        "topic/x": lines.header_line,
        "partition/x/0": lines.partition_line,
    }
    again = writers[key](value)
    assert lines.read_line(again).items() >= older.items()
