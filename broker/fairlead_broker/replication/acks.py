"""What `acks` of a produce request means."""

from typing import Final

ALL_IN_SYNC: Final = -1
"""`acks` of a producer that waits for the whole ISR."""
