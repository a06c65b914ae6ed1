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
NEW_TOPIC_S: Final = 2.0
"""How long a query that begins believes the same: brokers hear of a new topic within milliseconds,
and who has misspelled one does not want to wait."""
GROUP_TIMEOUT_S: Final = 3.0
"""Of a commit: progress is a mirror and may not hold up a batch."""
GROUP_SESSION_S: Final = 10.0
"""Without a sign of life for so long, a query is no longer in its group."""
GROUP_HEARTBEAT_S: Final = 2.0
GROUP_JOIN_S: Final = 15.0
"""Of a join, which a coordinator answers when every member has joined or its session has ended."""
GROUP_FIRST_JOIN_S: Final = 10.0
"""How long a first commit waits while the group forms: brokers make the topic of offsets, and give
further members `group.initial.rebalance.delay.ms`, 3 s by default."""
GROUP_TRANSACTION_TIMEOUT_S: Final = 10.0
"""Of a commit that its driver did not end: for so long readers of stable offsets may wait."""
GROUP_MARKER_S: Final = 0.01
"""Between looks whether a commit is to be seen: its marker comes a moment behind the answer."""
GROUP_LEAVE_S: Final = 2.0
GROUP_BACKOFF_S_MAX: Final = 30.0
TOKEN_TIMEOUT_S: Final = 10.0
"""Of a token's endpoint, each time that something is waited for."""
TOKEN_RETRY_S: Final = 5.0
"""Until another try to have a new one, while the one of before is good."""
TOKEN_ANSWER_BYTES_MAX: Final = 256 * 1024
REAUTHENTICATION_S_MIN: Final = 1.0
REAUTHENTICATION_SHARES: Final = (0.85, 0.95)
"""Of the time that a broker lets a login last: somewhere between these a client logs in again, as
Java's does."""
RETRY_BACKOFF_S: Final = 0.1
RETRY_BACKOFF_S_MAX: Final = 1.0
THROTTLE_S_MAX: Final = 1.0
"""Of a quota's pause that is waited for before the broker is asked again: it waits by itself."""
RECORD_BATCH_ROWS_MAX: Final = 100_000
"""Rows of one Arrow batch: Spark holds two of them a task."""
SINK_GATHER_BYTES: Final = 4 * 1024 * 1024
"""Of rows that are encoded at once: more of a partition's make larger batches."""
SINK_BATCH_BYTES: Final = 1_000_000
"""Of a batch before it is compressed: below what brokers take by default."""
SINK_REQUEST_BYTES: Final = 1024 * 1024
"""Of the batches of one request, and of one record: the default of Java's producer."""
SINK_QUEUE_BYTES: Final = 32 * 1024 * 1024
"""Encoded and not acknowledged, before the task has to wait: the memory of a Python worker is
bounded, often by half a gigabyte."""
SINK_WAIT_S: Final = 0.1
DELIVERY_TIMEOUT_S: Final = 120.0
TRANSACTION_TIMEOUT_S: Final = 900.0
"""How long what tasks have prepared waits for a driver: the most that brokers allow by default."""
DRIVER_TRANSACTION_TIMEOUT_S: Final = 60.0
"""Of the driver's own transaction, which holds one record."""
DECISION_WAIT_MS: Final = 500
DECISION_LOGS_MAX: Final = 100
"""Queries of which a Python worker remembers what it has read."""
