"""Identifiers: topic ids and their text form, the rules for topic names, aliases for plain numbers.

Numbers that only identify something (a broker, an epoch) are aliases of `int`, so they cost nothing
on the hot path. A topic id has its own type, because its 16 raw bytes and its 22-character text
are easily confused.
"""

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NewType, TypeAlias

BrokerId: TypeAlias = int
BrokerEpoch: TypeAlias = int
"""Number of one process start of a broker; the controller assigns them, always higher ones."""
ControllerEpoch: TypeAlias = int
"""Number of the term of one active controller."""
LeaderEpoch: TypeAlias = int
"""Number of one leader's term; +1 on every change of leader, also if there is none any more."""
PartitionEpoch: TypeAlias = int
"""Version of a partition's registration; +1 on every change of any field."""
PartitionIndex: TypeAlias = int

TopicId = NewType("TopicId", bytes)
"""16 raw bytes, as on the wire and in memory."""

NO_LEADER: Final = -1
NO_BROKER_EPOCH: Final = -1

TOPIC_ID_SIZE: Final = 16
ZERO_TOPIC_ID: Final = TopicId(bytes(TOPIC_ID_SIZE))
"""The topic id in requests that name no topic id."""

TOPIC_NAME_LENGTH_MAX: Final = 249
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
CLUSTER_METADATA: Final = "__cluster_metadata"
"""The metadata topic of Kafka's controllers; no topic may have this name."""
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})


def topic_id_text(topic_id: bytes) -> str:
    """Return the text form that Kafka's tools print: base64url, 22 characters, no padding."""
    return urlsafe_b64encode(topic_id)[:22].decode("ascii")


def parse_topic_id(text: str) -> TopicId:
    """Read the text form; ValueError if it is not the normal text of 16 bytes."""
    try:
        topic_id = urlsafe_b64decode(f"{text}==")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a topic id") from error
    if len(topic_id) != TOPIC_ID_SIZE or topic_id_text(topic_id) != text:
        raise ValueError(f"{text!r} is not a topic id of 22 base64url characters")
    return TopicId(topic_id)


def is_assignable_topic_id(candidate: bytes) -> bool:
    """Tell whether random bytes may become a topic id.

    Kafka reserves the two smallest ids. It also avoids ids whose text starts with a dash, because
    command lines would take them for an option.
    """
    if len(candidate) != TOPIC_ID_SIZE or candidate[:15] == bytes(15):
        return False
    return not topic_id_text(candidate).startswith("-")


def topic_name_problem(name: str) -> str | None:
    """Return what is wrong with a topic name, in words for the reply; None for a legal name.

    Names become folder names, so this check comes before any path is built from a name.
    """
    if not name:
        return "the topic name is empty"
    if name in {".", ".."}:
        return f"the topic name cannot be {name!r}"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the topic name has {len(name)} characters, at most {TOPIC_NAME_LENGTH_MAX} fit"
    if _LEGAL_NAME.fullmatch(name) is None:
        return f"the topic name {name!r} may only hold ASCII letters, digits, '.', '_' and '-'"
    return None


def is_legal_topic_name(name: str) -> bool:
    """Tell whether a topic may have this name."""
    return topic_name_problem(name) is None


def collision_key(name: str) -> str:
    """Return what two colliding names have in common: metric names turn '.' into '_'."""
    return name.replace(".", "_")


def topics_collide(name: str, other: str) -> bool:
    """Tell whether two different names collide: they differ only in '.' and '_'."""
    return name != other and collision_key(name) == collision_key(other)


def is_internal_topic(name: str) -> bool:
    """Tell whether this topic contains state of the cluster itself."""
    return name in INTERNAL_TOPICS
