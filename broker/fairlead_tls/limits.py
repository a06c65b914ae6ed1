"""Limits of TLS connections, on both sides."""

from typing import Final

HANDSHAKE_BYTES_MAX: Final = 64 * 1024
"""Most bytes that a peer may send in the handshake; most of them are certificates."""
RECORD_HEADER_BYTES: Final = 5
"""Bytes that must have arrived before any memory is used for TLS."""
RECORD_BYTES_MAX: Final = 16 * 1024
HANDSHAKE_STEP_BYTES: Final = 16 * 1024
"""Most bytes that one step of a handshake takes."""
UNASKED_BYTES_MAX: Final = 16 * 1024
"""Most bytes of TLS's own answers, such as to key updates, that a peer may leave unread."""
PEM_BYTES_MAX: Final = 1 << 20
"""The largest file of certificates."""
