"""All limits of the source, in one place."""

from typing import Final

FETCH_BYTES: Final = 4 * 1024 * 1024
"""Requested in one fetch; a larger batch is returned whole (KIP-74)."""
FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
"""Longest reply that is accepted; no broker has a batch larger than this."""
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Size to which one batch may be decompressed."""
RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Receive buffer of the socket: the next reply arrives while the last one is decoded."""
CONNECT_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 30.0
METADATA_TIMEOUT_S: Final = 60.0
"""How long the driver looks for a leader of every partition before it gives up."""
MISSING_TOPIC_S: Final = 10.0
"""How long a task retries if the broker that it asks does not know a topic."""
NEW_TOPIC_S: Final = 2.0
"""How long a new query looks for a topic: brokers learn of a new topic within milliseconds, and a
user who has misspelled one does not want to wait."""
GROUP_TIMEOUT_S: Final = 3.0
"""Time-out of a commit: progress is a mirror and must not delay a batch."""
GROUP_SESSION_S: Final = 10.0
"""Without a heartbeat for this time, a query is no longer in its group."""
GROUP_HEARTBEAT_S: Final = 2.0
GROUP_JOIN_S: Final = 15.0
"""Time-out of a join; its reply comes when every member has joined or its session has ended."""
GROUP_FIRST_JOIN_S: Final = 10.0
"""How long a first commit waits while the group forms: brokers create the offsets topic, and wait
`group.initial.rebalance.delay.ms`, 3 s by default, for more members."""
GROUP_TRANSACTION_TIMEOUT_S: Final = 10.0
"""Time-out of a commit that its driver did not end: readers of stable offsets may wait so long."""
GROUP_MARKER_S: Final = 0.01
"""Time between checks whether a commit is visible: its marker follows a moment after the reply."""
GROUP_LEAVE_S: Final = 2.0
GROUP_BACKOFF_S_MAX: Final = 30.0
TOKEN_TIMEOUT_S: Final = 10.0
"""Time-out of a token's endpoint, for each wait."""
TOKEN_RETRY_S: Final = 5.0
"""Time until the next attempt to fetch a new token, while the previous one is valid."""
TOKEN_ANSWER_BYTES_MAX: Final = 256 * 1024
REAUTHENTICATION_S_MIN: Final = 1.0
REAUTHENTICATION_SHARES: Final = (0.85, 0.95)
"""Shares of a login's lifetime between which a client logs in again, as the Java client does."""
RETRY_BACKOFF_S: Final = 0.1
RETRY_BACKOFF_S_MAX: Final = 1.0
THROTTLE_S_MAX: Final = 1.0
"""The longest throttle time that the client itself waits: the broker mutes it for the rest."""
RECORD_BATCH_ROWS_MAX: Final = 100_000
"""Rows of one Arrow batch: Spark has two of them in memory for each task."""
SINK_GATHER_BYTES: Final = 4 * 1024 * 1024
"""Rows that are encoded at once: more rows of a partition make larger batches."""
SINK_BATCH_BYTES: Final = 1_000_000
"""Size of a batch before it is compressed: below the default limit of brokers."""
SINK_REQUEST_BYTES: Final = 1024 * 1024
"""Size of the batches of one request, and of one record: the default of the Java producer."""
SINK_QUEUE_BYTES: Final = 32 * 1024 * 1024
"""Encoded bytes without an acknowledgement before the task has to wait: the memory of a Python
worker is limited, often to half a gigabyte."""
SINK_WAIT_S: Final = 0.1
DELIVERY_TIMEOUT_S: Final = 120.0
TRANSACTION_TIMEOUT_S: Final = 900.0
"""How long tasks' transactions wait for the driver: the most that brokers allow by default."""
DRIVER_TRANSACTION_TIMEOUT_S: Final = 60.0
"""Time-out of the driver's own transaction, which has one record."""
DECISION_WAIT_MS: Final = 500
DECISION_LOGS_MAX: Final = 100
"""Number of queries whose decisions a Python worker remembers."""
