"""What broker and controller say to each other: message types, bounds, and the proof of identity.

One WebSocket per broker and controller candidate, msgpack maps with a `type` each. In order:

| type | from | fields |
|---|---|---|
| challenge | controller | versions: the lowest and the highest that it speaks, nonce (32 bytes) |
| authenticate | broker | versions, nonce (32 bytes), proof |
| authenticated | controller | proof, cluster_id, controller_epoch, is_active |
| standby | controller | nothing: still not active; every `STANDBY_INTERVAL_MS` |
| active | controller | controller_epoch: a standby has taken over |
| register | broker | registration (`fairlead_model.codec`), cluster_id, position or None, |
|   |   | unclean: [topic, index] of replicas that cannot be opened, or lost more than a torn |
|   |   | last batch, whatever the stop before was; testimony: what the broker has seen, of |
|   |   | which the controller's tables have to know |
|   |   | (`fairlead_controller/decisions/tables/regressions`) |
| registered | controller | broker_epoch, controller_epoch, cluster_id, and the timing: |
|   |   | heartbeat_interval_ms, session_timeout_ms; writes: how many writes the tables |
|   |   | have had, which the broker remembers (`metadata_seen`) |
| changes | controller | position, changes, is_image, is_last |
| heartbeat | broker | number, position, is_ready, is_cordoned: its log directories take nothing |
|   |   | new, no if absent; progress |
| heartbeat_ack | controller | number, writes |
| call | broker | id, method, body (`fairlead_model.session.calls`) |
| reply | controller | id, body; or id, error_code, error_message |
| fault | controller | id, fault (`Fault`), duration_ms, stall_ms, run_ms: for drills |
| fault_reply | broker | id, error: empty, or why not; sent before the fault is carried out |
| goodbye | broker | nothing: it stops, do not wait for it |
| refused | controller | code, message; the connection closes |

A position is [controller epoch, sequence]: deltas of one controller are numbered without gaps. A
broker that comes back with a position gets what it missed, or, if that is forgotten or another
controller's, the image from nothing. An image or a long delta comes as several `changes`; it
holds from the one with `is_last`.

Both sides prove that they know the cluster's secret over both nonces and both ranges of versions,
each under a label of its own, so that neither proof can be reflected. The secret itself never
travels, and nobody between the two can make them speak an older version than they could.

The session has the highest version that both sides speak (`common_version`). A controller and a
broker that have none in common part with a sentence that says which of them is too old.

How messages change from release to release:

* A field may be added to any message, call or reply at any time. Who does not know it ignores it;
  who misses it takes the default that stands beside the field. A field whose absence could be taken
  for something unsafe has no default: it has to be there (`validate_only`, `is_unclean`).
* A list with a fixed order of fields (a change, a registration) grows at its end only.
* What an older peer may neither lose nor misread waits for a feature level (`features`), which is
  raised only when all brokers support it; the field or kind is sent from then on.
* A sender sends no type of message, kind of change, or value of an enumeration that the session's
  version does not have. An exception are types and kinds that begin with `OPTIONAL_MARK`: who does
  not know one skips it and says so once in its log. They must be such that an image without them is
  right, only poorer.
* Any other type or kind that is unknown ends the session, before anything of its message is acted
  on. An image in which a change of a partition is missing would be wrong, and a broker acts on it.
"""

from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Any, Final, NamedTuple


class SessionVersions(NamedTuple):
    """The versions of the session that one side speaks, both ends included."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest} to {self[1]}"


VERSIONS: Final = SessionVersions(1, 1)
"""What this release speaks."""
VERSION_MAX: Final = (1 << 31) - 1

OPTIONAL_MARK: Final = "?"
"""First character of a type of message, or kind of change, that may be skipped."""

SESSION_PATH: Final = "/session"

NONCE_SIZE: Final = 32
SECRET_SIZE_MIN: Final = 16
SECRET_MODE_FORBIDDEN: Final = 0o027
"""Bits that the mode of a file with a secret must not have: write for the group, all for others."""
"""A shorter secret is refused: it could be guessed from one recorded handshake."""

MESSAGE_SIZE_MAX: Final = 8 << 20
CALL_SIZE_MAX: Final = 3 << 19
"""A call of a broker: a reply that repeats all of it, and quotes it with escapes, still fits."""
HANDSHAKE_SIZE_MAX: Final = 4 << 10
"""Bound on messages of a peer that has not proved anything yet."""
UNPROVED_BYTES_MAX: Final = 16 << 10
"""Bound on all that such a peer may send, the head of its HTTP request included."""
HANDSHAKE_TIMEOUT_S: Final = 10
CHANGES_PER_MESSAGE: Final = 500
CONTAINER_LENGTH_MAX: Final = 100_000
"""Elements of one msgpack array or map."""
TEXT_LENGTH_MAX: Final = 1 << 20

UNPACK_LIMITS: Final[dict[str, Any]] = {
    "raw": False,
    "strict_map_key": False,
    "max_str_len": TEXT_LENGTH_MAX,
    "max_bin_len": TEXT_LENGTH_MAX,
    "max_array_len": CONTAINER_LENGTH_MAX,
    "max_map_len": CONTAINER_LENGTH_MAX,
    "max_ext_len": 0,
}
"""Options for msgpack's `unpackb`: no message makes the reader hold more than it sent."""

HEARTBEAT_INTERVAL_MS: Final = 250
"""Default of `broker.heartbeat.interval.ms`."""
SESSION_TIMEOUT_MS: Final = 1500
"""Default of `broker.session.timeout.ms`."""
HEARTBEATS_PER_SESSION_MIN: Final = 6
"""A session must not end because two heartbeats were late."""

STANDBY_INTERVAL_MS: Final = 2000
STANDBY_TIMEOUT_MS: Final = 6500
"""A standby that says nothing for so long is gone, and somebody else may have its name by now."""

_BROKER_LABEL: Final = b"fairlead session 1 broker"
_CONTROLLER_LABEL: Final = b"fairlead session 1 controller"


class MessageType(StrEnum):
    """Values of `type`."""

    CHALLENGE = "challenge"
    AUTHENTICATE = "authenticate"
    AUTHENTICATED = "authenticated"
    STANDBY = "standby"
    ACTIVE = "active"
    REGISTER = "register"
    REGISTERED = "registered"
    CHANGES = "changes"
    HEARTBEAT = "heartbeat"
    HEARTBEAT_ACK = "heartbeat_ack"
    CALL = "call"
    REPLY = "reply"
    FAULT = "fault"
    FAULT_REPLY = "fault_reply"
    GOODBYE = "goodbye"
    REFUSED = "refused"


class Fault(StrEnum):
    """What a drill may do to a broker's process; values of `fault`."""

    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"
    SLOW = "slow"
    FILL = "fill"


PAUSE_MAX_MS: Final = 600_000
STALL_MAX_MS: Final = 10_000
"""Longest of the turns in which a slow process stands still, and in which it runs."""


class SessionProtocolError(Exception):
    """The peer of a session broke the rules: close the connection and log the reason."""


def check_message(value: object) -> dict[str, Any]:
    """Take an unpacked value for a message; SessionProtocolError if it is none."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise SessionProtocolError("not a message: no type")
    return value


class NoCommonVersionError(Exception):
    """Controller and broker have no version of the session in common; the text says who is old."""


def read_versions(value: object) -> SessionVersions:
    """Read the versions that the peer speaks; SessionProtocolError if they are none."""
    if (
        not isinstance(value, list)
        or len(value) < 2
        or any(type(number) is not int for number in value[:2])
        or not 1 <= value[0] <= value[1] <= VERSION_MAX
    ):
        raise SessionProtocolError(f"no versions of the session: {str(value)[:40]}")
    return SessionVersions(value[0], value[1])


def common_version(controller: SessionVersions, broker: SessionVersions) -> int:
    """Give the version that a session has; NoCommonVersionError if there is none."""
    version = min(controller.highest, broker.highest)
    if version >= max(controller.lowest, broker.lowest):
        return version
    old = "controller" if controller.highest < broker.lowest else "broker"
    raise NoCommonVersionError(
        f"the {old} is too old: the controller speaks version {controller} of the session, the "
        f"broker {broker}; upgrade the {old}"
    )


class Greeting(NamedTuple):
    """What both sides have said before either has proved itself."""

    controller_nonce: bytes
    broker_nonce: bytes
    controller_versions: SessionVersions
    broker_versions: SessionVersions

    def packed(self) -> bytes:
        """Give the bytes that proofs are over, each field at a fixed place."""
        numbers = (*self.controller_versions, *self.broker_versions)
        return b"".join(
            (
                self.controller_nonce,
                self.broker_nonce,
                *(number.to_bytes(4, "big") for number in numbers),
            )
        )


def broker_proof(secret: bytes, greeting: Greeting) -> bytes:
    """Prove to the controller that a broker knows the secret."""
    return digest(secret, _BROKER_LABEL + greeting.packed(), sha256)


def controller_proof(secret: bytes, greeting: Greeting) -> bytes:
    """Prove to a broker that the controller knows the secret."""
    return digest(secret, _CONTROLLER_LABEL + greeting.packed(), sha256)


def is_proof(expected: bytes, given: object) -> bool:
    """Compare proofs in a time that tells nothing about where they differ."""
    return isinstance(given, bytes) and compare_digest(expected, given)


def parse_secret(content: bytes) -> bytes:
    """Take the secret from the bytes of its file; ValueError if it is too short."""
    secret = content.strip()
    if len(secret) < SECRET_SIZE_MIN:
        raise ValueError(f"the cluster secret has to have at least {SECRET_SIZE_MIN} bytes")
    return secret


def take_secret(content: bytes, mode: int) -> bytes:
    """Take the secret from a file's bytes and its mode; ValueError if others may read or set it.

    Whoever knows the secret may be a broker or the controller.
    """
    if problem := secret_mode_problem(mode):
        raise ValueError(problem)
    return parse_secret(content)


def secret_mode_problem(mode: int) -> str:
    """Tell what is wrong with the mode of a file that holds a secret; empty if nothing is.

    The group may read it: so a service gets a file that belongs to root, and a container the files
    of a Kubernetes Secret.
    """
    if not mode & SECRET_MODE_FORBIDDEN:
        return ""
    return (
        f"its mode is {mode & 0o777:04o}, so others than its owner and group can use it: "
        "chmod 0640, or 0600"
    )
