"""What broker and controller say to each other: message types, bounds, and the proof of identity.

One WebSocket per broker and controller candidate, msgpack maps with a `type` each. In order:

| type | from | fields |
|---|---|---|
| challenge | controller | version, nonce (32 bytes) |
| authenticate | broker | nonce (32 bytes), proof |
| authenticated | controller | proof, cluster_id, controller_epoch, is_active |
| standby | controller | nothing: still not active; every `STANDBY_INTERVAL_MS` |
| active | controller | controller_epoch: a standby has taken over |
| register | broker | registration (`fairlead_model.codec`), cluster_id, position or None, |
|   |   | unclean: [topic, index] of replicas that cannot be opened, or lost more than a torn |
|   |   | last batch, whatever the stop before was |
| registered | controller | broker_epoch, controller_epoch, cluster_id, and the timing: |
|   |   | heartbeat_interval_ms, session_timeout_ms |
| changes | controller | position, changes, is_image, is_last |
| heartbeat | broker | number, position, is_ready, progress |
| heartbeat_ack | controller | number |
| call | broker | id, method, body (`fairlead_model.calls`) |
| reply | controller | id, body; or id, error_code, error_message |
| fault | controller | id, fault (kill, pause, resume), duration_ms: for drills |
| fault_reply | broker | id, error: empty, or why not; sent before the fault is carried out |
| goodbye | broker | nothing: it stops, do not wait for it |
| refused | controller | code, message; the connection closes |

A position is [controller epoch, sequence]: deltas of one controller are numbered without gaps. A
broker that comes back with a position gets what it missed, or, if that is forgotten or another
controller's, the image from nothing. An image or a long delta comes as several `changes`; it
holds from the one with `is_last`.

Both sides prove that they know the cluster's secret over both nonces, each under a label of its
own, so that neither proof can be reflected. The secret itself never travels.
"""

from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Any, Final

PROTOCOL_VERSION: Final = 1
SESSION_PATH: Final = "/session"

NONCE_SIZE: Final = 32
SECRET_SIZE_MIN: Final = 16
"""A shorter secret is refused: it could be guessed from one recorded handshake."""

MESSAGE_SIZE_MAX: Final = 8 << 20
CALL_SIZE_MAX: Final = 3 << 19
"""A call of a broker: a reply that repeats all of it, and quotes it with escapes, still fits."""
HANDSHAKE_SIZE_MAX: Final = 64 << 10
"""Bound on messages of a peer that has not proved anything yet."""
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
SESSION_TIMEOUT_MS: Final = 1500
"""At least six heartbeats: a session must not end because two of them were late."""

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


PAUSE_MAX_MS: Final = 600_000


class SessionProtocolError(Exception):
    """The peer of a session broke the rules: close the connection and log the reason."""


def check_message(value: object) -> dict[str, Any]:
    """Take an unpacked value for a message; SessionProtocolError if it is none."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise SessionProtocolError("not a message: no type")
    return value


def broker_proof(secret: bytes, controller_nonce: bytes, broker_nonce: bytes) -> bytes:
    """Prove to the controller that a broker knows the secret."""
    return digest(secret, _BROKER_LABEL + controller_nonce + broker_nonce, sha256)


def controller_proof(secret: bytes, controller_nonce: bytes, broker_nonce: bytes) -> bytes:
    """Prove to a broker that the controller knows the secret."""
    return digest(secret, _CONTROLLER_LABEL + controller_nonce + broker_nonce, sha256)


def is_proof(expected: bytes, given: object) -> bool:
    """Compare proofs in a time that tells nothing about where they differ."""
    return isinstance(given, bytes) and compare_digest(expected, given)


def parse_secret(content: bytes) -> bytes:
    """Take the secret from the bytes of its file; ValueError if it is too short."""
    secret = content.strip()
    if len(secret) < SECRET_SIZE_MIN:
        raise ValueError(f"the cluster secret has to have at least {SECRET_SIZE_MIN} bytes")
    return secret
