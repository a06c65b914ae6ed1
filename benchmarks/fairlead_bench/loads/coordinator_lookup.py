"""Find the coordinator of a group or a transactional id: FindCoordinator 1, encoded by hand."""

import struct
from enum import IntEnum

from fairlead_bench.loads.wire_bytes import FIND_COORDINATOR, NONE, frame, header, short_text
from fairlead_bench.peers.peer import exchange


class KeyType(IntEnum):
    """What a key identifies."""

    GROUP = 0
    TRANSACTION = 1


def find_coordinator(port: int, key: str, key_type: KeyType) -> int | None:
    """Return the coordinator's broker id; None if there is none. OSError without an answer."""
    body = short_text(key) + struct.pack(">b", key_type)
    reply = exchange(port, frame(header(FIND_COORDINATOR, 1) + body), timeout_s=2)
    error, message_size = struct.unpack_from(">hh", reply, 8)
    node_id: int = struct.unpack_from(">i", reply, 12 + max(message_size, 0))[0]
    return node_id if error == NONE else None
