"""Limits of TLS connections, on both sides."""

from typing import Final

HANDSHAKE_BYTES_MAX: Final = 64 * 1024
"""What a peer may send until the handshake is done: certificates, most of it."""
RECORD_HEADER_BYTES: Final = 5
"""What must have come before any memory is spent on TLS."""
RECORD_BYTES_MAX: Final = 16 * 1024
HANDSHAKE_STEP_BYTES: Final = 16 * 1024
"""What one step of a handshake takes in at most."""
UNASKED_BYTES_MAX: Final = 16 * 1024
"""Answers of TLS itself, as to new keys, that a peer may leave lying."""
PEM_BYTES_MAX: Final = 1 << 20
"""The largest file of certificates."""
