"""The session of a broker with a controller: message types, limits, and the proof of identity.

A broker has a WebSocket to each controller candidate. Messages are msgpack maps with a `type`. In
order:

| type | from | fields |
|---|---|---|
| challenge | controller | versions: the lowest and the highest that it supports, nonce (32 bytes) |
| authenticate | broker | versions, nonce (32 bytes), proof |
| authenticated | controller | proof, cluster_id, controller_epoch, is_active |
| standby | controller | nothing: still not active; every `STANDBY_INTERVAL_MS` |
| active | controller | controller_epoch: this standby is active now |
| register | broker | registration (`fairlead_model.codec`), cluster_id, position or None, |
|   |   | unclean: [topic, index] of replicas that cannot be opened, or lost more than a torn |
|   |   | last batch, whether or not the last stop was clean; testimony: what the broker has |
|   |   | seen, which the controller's tables must contain |
|   |   | (`fairlead_controller/decisions/tables/regressions`) |
| registered | controller | broker_epoch, controller_epoch, cluster_id, and the timing: |
|   |   | heartbeat_interval_ms, session_timeout_ms; writes: the number of writes to the |
|   |   | tables, which the broker stores (`metadata_seen`) |
| changes | controller | position, changes, is_image, is_last |
| heartbeat | broker | number, position, is_ready, is_cordoned: its log directories take no new |
|   |   | replicas (absent: false); progress |
| heartbeat_ack | controller | number, writes |
| call | broker | id, method, body (`fairlead_model.session.calls`) |
| reply | controller | id, body; or id, error_code, error_message |
| fault | controller | id, fault (`Fault`), duration_ms, stall_ms, run_ms: for drills |
| fault_reply | broker | id, error: empty, or why not; sent before the fault is carried out |
| goodbye | broker | nothing: the broker stops, do not wait for it |
| refused | controller | code, message; the connection closes |

A position is [controller epoch, sequence]: the deltas of one controller are numbered without gaps.
If a broker reconnects with a position, it gets the deltas since then. If the controller no longer
has them, or the position is another controller's, it gets the whole image. An image or a long delta
is sent as several `changes`; the broker applies it when it has the one with `is_last`.

Both sides prove that they know the cluster's secret. The proof covers both nonces and both ranges
of versions, and has a label for each side, so a proof cannot be reflected. The secret itself is
never sent, and nobody between the two can make them use an older version than they could.

The session uses the highest version that both sides support (`common_version`). If they have no
version in common, the session ends with an error that says which side is too old.

How messages change from release to release:

* A field may be added to any message, call or reply at any time. A peer that does not know it
  ignores it; a peer that misses it uses the field's default, which is documented with the field. If
  the absence of a field could be unsafe, it is required (`validate_only`, `is_unclean`).
* A list with a fixed order of fields (a change, a registration) grows at its end only.
* What an older peer may neither lose nor misread waits for a feature level (`features`), which is
  raised only when all brokers support it. From then on the field or kind is sent.
* A sender uses only message types, kinds of change and enumeration values of the session's version.
  Types and kinds that begin with `OPTIONAL_MARK` are an exception: a peer that does not know one
  skips it and logs that once. An image without optional changes must be correct, but may be less
  complete.
* Any other unknown type or kind ends the session, before any part of its message takes effect. An
  image without the change of a partition would be wrong, and the broker would act on it.
"""

from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Any, Final, NamedTuple


class SessionVersions(NamedTuple):
    """The versions of the session that one side supports, both ends included."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest} to {self[1]}"


VERSIONS: Final = SessionVersions(1, 1)
"""The versions that this release supports."""
VERSION_MAX: Final = (1 << 31) - 1

OPTIONAL_MARK: Final = "?"
"""First character of message types and kinds of change that a peer may skip."""

SESSION_PATH: Final = "/session"

NONCE_SIZE: Final = 32
SECRET_SIZE_MIN: Final = 16
"""A shorter secret is refused: it could be guessed from one recorded handshake."""
SECRET_MODE_FORBIDDEN: Final = 0o027
"""Mode bits that a file with a secret must not have: write for the group, all for others."""

MESSAGE_SIZE_MAX: Final = 8 << 20
CALL_SIZE_MAX: Final = 3 << 19
"""Limit of a broker's call. A reply that repeats all of it, quoted with escapes, still fits."""
HANDSHAKE_SIZE_MAX: Final = 4 << 10
"""Limit of messages of a peer that has not authenticated yet."""
UNPROVED_BYTES_MAX: Final = 16 << 10
"""Limit of all bytes that this peer may send, including the head of its HTTP request."""
HANDSHAKE_TIMEOUT_S: Final = 10
CHANGES_PER_MESSAGE: Final = 500
CONTAINER_LENGTH_MAX: Final = 100_000
"""Most elements of one msgpack array or map."""
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
"""Options of msgpack's `unpackb`: the reader needs no more memory than the message has bytes."""

HEARTBEAT_INTERVAL_MS: Final = 250
"""Default of `broker.heartbeat.interval.ms`."""
SESSION_TIMEOUT_MS: Final = 1500
"""Default of `broker.session.timeout.ms`."""
HEARTBEATS_PER_SESSION_MIN: Final = 6
"""A session must not end because two heartbeats were late."""

STANDBY_INTERVAL_MS: Final = 2000
STANDBY_TIMEOUT_MS: Final = 6500
"""A standby that sends nothing for so long is gone; another process may have its name by now."""

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
    """Faults that a drill may cause in a broker's process; values of `fault`."""

    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"
    SLOW = "slow"
    FILL = "fill"


PAUSE_MAX_MS: Final = 600_000
STALL_MAX_MS: Final = 10_000
"""Longest time that a slow process stops, or runs, in turn."""


class SessionProtocolError(Exception):
    """The peer of a session broke the rules: close the connection and log the reason."""


def check_message(value: object) -> dict[str, Any]:
    """Return an unpacked value if it is a message; else SessionProtocolError."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise SessionProtocolError("not a message: no type")
    return value


class NoCommonVersionError(Exception):
    """Controller and broker support no common version; the text says which side is too old."""


def read_versions(value: object) -> SessionVersions:
    """Read the versions that the peer supports; SessionProtocolError if they are malformed."""
    if (
        not isinstance(value, list)
        or len(value) < 2
        or any(type(number) is not int for number in value[:2])
        or not 1 <= value[0] <= value[1] <= VERSION_MAX
    ):
        raise SessionProtocolError(f"no versions of the session: {str(value)[:40]}")
    return SessionVersions(value[0], value[1])


def common_version(controller: SessionVersions, broker: SessionVersions) -> int:
    """Return the version that a session uses; NoCommonVersionError if there is none."""
    version = min(controller.highest, broker.highest)
    if version >= max(controller.lowest, broker.lowest):
        return version
    old = "controller" if controller.highest < broker.lowest else "broker"
    raise NoCommonVersionError(
        f"the {old} is too old: the controller speaks version {controller} of the session, the "
        f"broker {broker}; upgrade the {old}"
    )


class Greeting(NamedTuple):
    """What both sides have sent before either has authenticated."""

    controller_nonce: bytes
    broker_nonce: bytes
    controller_versions: SessionVersions
    broker_versions: SessionVersions

    def packed(self) -> bytes:
        """Return the bytes that the proofs cover, each field at a fixed place."""
        numbers = (*self.controller_versions, *self.broker_versions)
        return b"".join(
            (
                self.controller_nonce,
                self.broker_nonce,
                *(number.to_bytes(4, "big") for number in numbers),
            )
        )


def broker_proof(secret: bytes, greeting: Greeting) -> bytes:
    """Return the proof to the controller that a broker knows the secret."""
    return digest(secret, _BROKER_LABEL + greeting.packed(), sha256)


def controller_proof(secret: bytes, greeting: Greeting) -> bytes:
    """Return the proof to a broker that the controller knows the secret."""
    return digest(secret, _CONTROLLER_LABEL + greeting.packed(), sha256)


def is_proof(expected: bytes, given: object) -> bool:
    """Compare proofs in constant time."""
    return isinstance(given, bytes) and compare_digest(expected, given)


def parse_secret(content: bytes) -> bytes:
    """Return the secret from the bytes of its file; ValueError if it is too short."""
    secret = content.strip()
    if len(secret) < SECRET_SIZE_MIN:
        raise ValueError(f"the cluster secret has to have at least {SECRET_SIZE_MIN} bytes")
    return secret


def take_secret(content: bytes, mode: int) -> bytes:
    """Return the secret from its file's bytes and mode; ValueError if others may read or write it.

    Whoever knows the secret can act as a broker or as the controller.
    """
    if problem := secret_mode_problem(mode):
        raise ValueError(problem)
    return parse_secret(content)


def secret_mode_problem(mode: int) -> str:
    """Return what is wrong with the mode of a file with a secret; empty if nothing is.

    The group may read it: a service needs that for a file of root, and a container for the files
    of a Kubernetes Secret.
    """
    if not mode & SECRET_MODE_FORBIDDEN:
        return ""
    return (
        f"its mode is {mode & 0o777:04o}, so others than its owner and group can use it: "
        "chmod 0640, or 0600"
    )
