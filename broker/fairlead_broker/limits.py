"""Every bound on what a peer, a client or a backlog can make this broker hold.

One place, so that "what limits this?" has one answer. Sizes are bytes. A limit that a setting can
change is the default of that setting; the others are fixed.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Frames.
FRAME_SIZE_MIN: Final = 8
"""The fixed part of a request header: a shorter frame cannot be a request."""
FRAME_SIZE_MAX: Final = 100 * MIB
"""Default of `socket.request.max.bytes`."""
UNDERSTOOD_FRAME_BYTES_MAX: Final = 16 * MIB
"""Of every request but Produce: it is decoded whole, and a hundred megabytes take seconds."""
UNPROVED_FRAME_BYTES_MAX: Final = 64 * KIB
"""What a peer may send to the brokers' listener before it has proved that it is one."""
FRAME_DEADLINE_S: Final = 30
"""How long the bytes of one frame may take to arrive, first to last…"""
FRAME_RATE_MIN_BYTES_PER_S: Final = 256 * KIB
"""…and a second more for so many bytes that have come."""
RECEIVE_BUFFER_BYTES: Final = 256 * KIB
"""The receive buffer that all connections share."""
CARRY_BYTES_MAX: Final = 4 * KIB
"""An incomplete frame up to this size waits in place; larger ones get a buffer of their own."""
FRAME_STEP_BYTES: Final = MIB + 64 * KIB
"""A frame's own buffer starts no larger than this and grows only as its bytes arrive."""
FRAME_BUFFERS_KEPT_BYTES: Final = 16 * MIB
"""Frame buffers that are kept for the next large frames."""
REQUEST_MEMORY_BYTES: Final = 256 * MIB
"""Received and not yet handled bytes of all connections; beyond, large frames wait their turn."""

# Connections.
CONNECTIONS_MAX: Final = 10_000
"""Default of `max.connections`."""
CONNECTIONS_PER_IP_MAX: Final = 4_000
"""Default of `max.connections.per.ip`; proxies and one-machine tests share one address."""
CONNECTION_CREATIONS_PER_S: Final = 200
"""Default of `max.connection.creation.rate`: faster peers wait in the listen queue."""
CONNECTION_CREATIONS_BURST: Final = 2_500
"""How many connections may come at once, after a quiet time, before the rate holds."""
LISTEN_BACKLOG: Final = 1_024
ACCEPTS_PER_TURN: Final = 64
IDLE_CONNECTION_S: Final = 600
"""Default of `connections.max.idle.ms`, in seconds."""
KEEPALIVE_IDLE_S: Final = 60
KEEPALIVE_INTERVAL_S: Final = 10
KEEPALIVE_PROBES: Final = 6
"""A peer that vanished is found after `IDLE + INTERVAL * PROBES` seconds of silence."""
LINK_KEEPALIVE_IDLE_S: Final = 5
LINK_KEEPALIVE_INTERVAL_S: Final = 2
LINK_KEEPALIVE_PROBES: Final = 3
"""The same for connections to controllers, of which there are few: they are found sooner."""
HTTP_CONNECTIONS_MAX: Final = 200
"""Connections to the HTTP port; one more ends the oldest, so that probes always come through."""
CLIENT_ID_BYTES_MAX: Final = 1_024
"""Longer client ids are refused: they end up in log lines and labels."""

# Requests and replies of one connection.
REQUESTS_IN_FLIGHT_MAX: Final = 16
"""Parked requests of a connection; beyond, it isn't read."""
UNSENT_BYTES_MAX: Final = 8 * MIB
"""Replies that wait for a slow reader; beyond, its next request isn't handled."""
WRITE_STALL_S: Final = 30
"""How long a reader may take nothing at all while replies wait for it."""
BYTES_READ_PER_TURN: Final = 2 * MIB
BYTES_SENT_PER_TURN: Final = 2 * MIB
"""What a connection may move before the others get their turn."""
SEGMENTS_PER_SEND: Final = 512
"""Below the kernel's IOV_MAX (1,024)."""
COPIED_SLICE_BYTES: Final = 16 * KIB
"""Slices below are copied beside their header; `sendfile` pays off above."""

# Cold reads.
READ_AHEAD_THREADS: Final = 4
READ_AHEAD_BYTES: Final = MIB
"""What one job of the read-ahead pool brings into the page cache."""
PROBE_STRIDE_BYTES: Final = 512 * KIB
"""How far apart the pages are that are asked whether a slice is cached.

Files come into the page cache and leave it in far longer runs; a hole in between costs one wait."""

# Requests.
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
PARKED_FETCHES_MAX: Final = 10_000
PARKED_PRODUCES_MAX: Final = 10_000
PARKED_KEYS_MAX: Final = 500_000
"""Partitions that all parked requests of one kind wait for, together."""
PURGATORY_TIMER_MS: Final = 2
"""Deadlines of parked requests are kept to within this."""
FETCH_SESSION_PARTITIONS_MAX: Final = 200_000
"""Partitions remembered by all fetch sessions together; beyond, sessions are declined."""
FETCH_SESSION_EVICTION_MS: Final = 120_000
"""A fetch session unused for this long may be evicted by any other."""

# Log lines that peers cause.
PEER_LOG_LINES_PER_WINDOW: Final = 20
PEER_LOG_WINDOW_S: Final = 10
"""At most so many lines a reason and window; the rest is counted."""

# Storage.
RECENT_BATCHES_MAX: Final = 256
"""Newest batches of a log whose positions stay in memory, so that tail readers touch no index."""
PRODUCERS_PER_LOG_MAX: Final = 10_000
"""Idempotent producers that a log remembers; the least recently active one goes first."""
INDEX_PAGES_MAX: Final = 1_024
"""Pages (4 KiB) of sealed indexes that all logs of a process keep together."""
SEALED_FILES_OPEN_MAX: Final = 2_048
"""Read descriptors that all logs keep open for sealed segments."""
SMALL_FILE_BYTES_MAX: Final = 64 * MIB
"""No checkpoint, snapshot or metadata file is larger; a larger one is not read."""
MARKED_LOGS_MAX: Final = 200
"""Logs that one checkpoint marks as its own: a file each, made by the loop in 10 ms together."""
LOOKUP_DECOMPRESSED_MAX: Final = 16 * MIB
"""What one compressed batch may grow to while a timestamp is looked up inside it."""
WALKED_RECORDS_MAX: Final = 100_000
"""Records of one batch that the loop looks at, for their keys or for a timestamp: a tenth of a
second. A compressed batch of 1 MiB may hold millions, which would stop the broker for that long."""
CLEANER_DECOMPRESSED_MAX: Final = 64 * MIB
"""What one compressed batch may grow to while its log is compacted."""
CLEANER_MESSAGE_BYTES_MAX: Final = 4 * MIB
"""One line of what the compacting child says: it names up to all segments of a log."""
CLEANER_SILENCE_S: Final = 600
"""How long the compacting child may say nothing, for instance in an fsync, before it is killed."""
CLEANER_BATCH_BYTES_MAX: Final = 128 * MIB
"""The largest batch that compaction reads; none that a request carries is as large."""
CLEANER_ROOM_LEFT_BYTES: Final = 64 * MIB
"""What compaction leaves free on the disk, for appends, while old and new files are there."""

# Metadata and admin requests.
TOPICS_PER_REQUEST_MAX: Final = 10_000
SLOTS_PER_CALL_MAX: Final = 500
"""Topics of an admin request that the controller is asked to decide at once: some 0.2 s."""
METADATA_CACHE_BYTES_MAX: Final = 8 * MIB
"""Encoded Metadata replies kept for repeated questions."""
TOPIC_CREATIONS_MAX: Final = 100
"""Topics that are being created because a client asked for them, at one time."""
DESCRIBED_PARTITIONS_MAX: Final = 2_000
"""Partitions in one DescribeTopicPartitions reply; a cursor leads on."""
ADMIN_TIMEOUT_MS_MAX: Final = 300_000
"""Longest wait for the controller that a client's time-out can ask for."""
METRIC_TOPICS_MAX: Final = 200
"""Topics with metrics of their own, the first by name; sums count all."""
METRIC_PARTITIONS_MAX: Final = 1_000
"""Partitions with metrics of their own, the first by topic and index; sums count all."""
METRIC_BROKERS_MAX: Final = 50
"""Followers whose lag is told one by one."""
METRIC_GROUPS_A_TURN: Final = 1_000
"""Groups that a scrape looks at before others get their turn of the loop."""
METRIC_PARTITIONS_A_TURN: Final = 200
"""Partitions that a scrape looks at before others get their turn of the loop."""
PARTITION_CHANGES_PER_TURN_MS: Final = 20
"""How long one turn of the loop creates, opens and leads partitions before others run."""
COORDINATOR_KEYS_MAX: Final = 10_000
"""Groups in one FindCoordinator request."""
ADMIN_TIMEOUT_MS: Final = 30_000
"""Wait for the controller where a request carries no time-out of its own."""
DEPARTED_BROKER_LISTED_MS: Final = 10_000
"""How long Metadata goes on naming the address of a broker that has gone out of service."""
LEADER_DOUBT_MS: Final = 300
"""How long Metadata waits for the controller's word on a leader that has hung up."""

# Groups.
GROUP_PENDING_MEMBERS_MAX: Final = 1_000
"""Member ids of one group that were handed out and not come back with; the oldest goes first."""
GROUPS_PER_SHARD_MAX: Final = 50_000
"""Groups in one partition of the offsets topic; beyond, no new ones are made."""
GROUP_MEMBERS_MAX: Final = 10_000
"""Members of a group, where `group.max.size` allows more."""
GROUP_MEMBERS_BYTES_MAX: Final = 512 * MIB
"""What the members of all groups of a broker bring along and are given; beyond, none join."""
MEMBER_OVERHEAD_BYTES: Final = KIB
"""What a member takes beside its protocols and its assignment, about."""
PENDING_MEMBER_BYTES: Final = 512
"""What a member id takes that was handed out and not come back with, about."""
PARKED_MEMBERS_MAX: Final = 20_000
"""Joins and syncs of all groups that wait for other members."""
MEMBER_METADATA_BYTES_MAX: Final = MIB
"""What a member may bring along with a join, all its protocols together with their names."""
MEMBER_PROTOCOLS_MAX: Final = 100
"""Protocols (assignors) that a member may name in a join; clients know four."""
MEMBER_ID_PREFIX_MAX: Final = 255
"""Characters of a client id or an instance id that a new member id begins with."""
GROUP_WRITES_WAITING_MAX: Final = 10_000
"""Batches of one partition that wait for the high watermark; beyond, writes are refused."""
TOMBSTONES_PER_WRITE: Final = 500
"""Offsets removed by one write: with the longest names they fit into a batch of 512 KiB."""
GROUP_LOADS_AT_ONCE_MAX: Final = 2
"""Partitions of the offsets topic that are read at one time."""
GROUP_TIMER_MS: Final = 5
"""Deadlines of groups are kept to within this."""
OFFSETS_PER_FETCH_MAX: Final = 100_000
"""Partitions named in one OffsetFetch, over all of its groups."""
OFFSETS_FOUND_MAX: Final = 500_000
"""Offsets in one reply to OffsetFetch, those of groups that are asked for everything included."""
OFFSETS_A_TURN: Final = 10_000
"""Offsets that a fetch looks up at once; for more, others get their turn of the loop between."""
GROUPS_PER_REQUEST_MAX: Final = 10_000
"""Groups in one request that describes, deletes or asks for the offsets of many."""

# Replication.
FOLLOWER_FETCHES_IN_FLIGHT_MAX: Final = 2
"""One that waits at the leader, and one that has news about a partition."""
FOLLOWER_REPLY_BUFFER_BYTES: Final = 64 * KIB
"""A follower's receive buffer begins with this and grows to the size of what the leader sends."""
FOLLOWER_SOCKET_BUFFER_BYTES: Final = 2 * MIB
"""Both ends of a follower's connection: a reply then needs few turns of either loop."""
ISR_PROPOSALS_PER_CALL_MAX: Final = 1_000
HELD_PRODUCE_BYTES_MAX: Final = 64 * MIB
"""Produces that wait until a broker that was stopped knows that it still leads."""
HELD_PRODUCE_OVERHEAD_BYTES: Final = KIB
"""What such a produce takes beside its records, about."""

# Background work.
DISK_THREADS: Final = 4
"""Threads that fsync, write out and unlink."""
FLUSHES_AT_ONCE_MAX: Final = 3
"""Logs being fsynced at one time, so that a thread is left for write-out."""
HOUSEKEEPING_SLICE_MS: Final = 5
"""How long retention and expiry hold the loop before others run."""
SEGMENTS_DELETED_A_TURN: Final = 100
"""Segments of a log that retention renames before others get their turn of the loop."""
KEPT_CONFIGS_MAX: Final = 1_000
"""Different sets of topic overrides whose log settings are remembered."""
