"""Every bound of the source, in one place."""

from typing import Final

FETCH_BYTES: Final = 4 * 1024 * 1024
"""Asked of one fetch; a batch that is larger comes whole (KIP-74)."""
FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
"""Longest reply that is believed; a batch larger than this is nobody's."""
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
"""What one batch may unpack to."""
RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Of the socket: the next reply arrives while the last one is decoded."""
CONNECT_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 30.0
METADATA_TIMEOUT_S: Final = 60.0
"""How long the driver looks for a leader of every partition before it gives up."""
MISSING_TOPIC_S: Final = 10.0
"""How long a task believes that a topic, unknown to the broker it asks, is only news to it."""
GROUP_TIMEOUT_S: Final = 3.0
"""Of a commit: progress is a mirror and may not hold up a batch."""
GROUP_BACKOFF_S_MAX: Final = 30.0
RETRY_BACKOFF_S: Final = 0.1
RETRY_BACKOFF_S_MAX: Final = 1.0
RECORD_BATCH_ROWS_MAX: Final = 100_000
"""Rows of one Arrow batch: Spark holds two of them a task."""
SINK_QUEUE_RECORDS: Final = 100_000
"""Records that the producer holds before it makes the task wait."""
SINK_QUEUE_BYTES: Final = 64 * 1024 * 1024
"""Of those records: the memory of a Python worker is bounded, often by half a gigabyte."""
ERRORS_SHOWN: Final = 5
