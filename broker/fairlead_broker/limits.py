"""Every bound on what a peer, a client or a backlog can make this broker hold.

One place, so that "what limits this?" has one answer. Sizes are bytes. A limit that a setting can
change is the default of that setting; the others are fixed.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Frames.
FRAME_SIZE_MAX: Final = 100 * MIB
"""Default of `socket.request.max.bytes`."""
UNDERSTOOD_FRAME_BYTES_MAX: Final = 16 * MIB
"""Of every request but Produce: it is decoded whole, and a hundred megabytes take seconds."""
UNPROVED_FRAME_BYTES_MAX: Final = 4 * KIB
"""The largest request to the brokers' listener, and reply from there, before the peer has proved
that it is a broker."""
UNPROVED_UNSENT_BYTES_MAX: Final = 16 * KIB
"""Replies that wait for such a peer; beyond, its next request isn't handled."""
UNPROVED_S: Final = 5
"""How long it may take to prove itself."""
UNPROVED_MAX: Final = 512
UNPROVED_PER_IP_MAX: Final = 256
"""Such peers at once, and of one address; one more, and the oldest goes."""
STRANGER_S: Final = 10
"""How long a client of a listener with TLS or SASL may take to be let in, from its accept on."""
STRANGERS_MAX: Final = 1_000
STRANGERS_PER_IP_MAX: Final = 500
"""Such clients at once, and of one address; one more, and the oldest goes."""
STRANGER_UNSENT_BYTES_MAX: Final = 16 * KIB
"""Replies that wait for such a client; beyond, its next request isn't handled."""
PLAIN_PASSWORD_BYTES_MAX: Final = 1_024
PLAIN_REMEMBERED_MAX: Final = 1_000
"""Passwords that were right a moment ago, so that they are not derived again."""
LOGINS_WAITING_MAX: Final = 1_000
"""Logins whose passwords or tokens wait for the thread that looks at them."""
LOGIN_FAILURES_PER_S: Final = 10
LOGIN_FAILURES_BURST: Final = 50
"""Wrong passwords from one address; after more, passwords from there are refused unseen."""
LOGIN_FAILING_ADDRESSES_MAX: Final = 10_000
"""Addresses of which that is counted."""
TOKEN_BYTES_MAX: Final = 16 * KIB
"""The longest token of OAUTHBEARER, and the longest message of any login."""
TOKEN_KEY_ID_LENGTH_MAX: Final = 1_000
TOKEN_LIFE_S_MAX: Final = 366 * 86_400
"""How far off the end of a token may be."""
JWKS_BYTES_MAX: Final = 256 * KIB
JWKS_TIMEOUT_S: Final = 10
JWKS_EXPEDITED_S: Final = 30
"""How often at most a token with an unknown key has the keys read again."""
TLS_SEND_BYTES: Final = 128 * KIB
"""Of a reply, what is encrypted at once and waits for the socket then."""
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
INTERNAL_CREATIONS_PER_S: Final = 1_000
INTERNAL_CREATIONS_BURST: Final = 2_500
"""The same for the brokers' listener, which waits for no client."""
DESCRIPTORS_KEPT_MAX: Final = 1_024
"""Descriptors that clients leave to logs and brokers; an eighth, where the process may have few."""
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

# Requests.
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
PARTITIONS_READ_AGAIN_MAX: Final = 16
"""Partitions of a waiting fetch that are all read again when one of them moves. Of one with more,
those are that have moved, until there is enough: each takes some 2 µs."""
PARKED_FETCHES_MAX: Final = 10_000
PARKED_PRODUCES_MAX: Final = 10_000
PARKED_KEYS_MAX: Final = 500_000
"""Partitions that all parked requests of one kind wait for, together."""
PARKED_WAIT_MAX_MS: Final = 300_000
"""How long a client's Fetch or DeleteRecords waits at most, whatever it asks for."""
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
PRODUCERS_MAX: Final = 500_000
"""Idempotent producers that all logs of a broker remember, some 300 MB; where there are more, the
logs with most of them forget the least recently active ones."""
RETRIED_WITHIN_MS: Final = 600_000
"""How long a batch may come again: librdkafka gives it up after five minutes, Java after two."""
INDEX_PAGES_MAX: Final = 1_024
"""Pages (4 KiB) of sealed indexes that all logs of a process keep together."""
SEALED_FILES_OPEN_MAX: Final = 2_048
"""Read descriptors that all logs keep open for sealed segments."""
LOG_DIRECTORIES_MAX: Final = 64
"""Disks of one broker; each has a thread's time and an id in the broker's registration."""
SMALL_FILE_BYTES_MAX: Final = 64 * MIB
"""No checkpoint, snapshot or metadata file is larger; a larger one is not read."""
NEWLY_CHECKPOINTED_LOGS_MAX: Final = 200
"""Logs that one checkpoint may be the first to speak of: a file each, 10 ms of the loop in all."""
LOOKUP_DECOMPRESSED_MAX: Final = 16 * MIB
"""What one compressed batch may grow to while a timestamp is looked up inside it."""
LOOKUP_BATCHES_MAX: Final = 50_000
"""Headers that one lookup of a timestamp goes through, some 50 ms; it then ends where it has got
to, before the record. Only many batches of one time, or earlier ones, lie between two entries of a
time index."""
LOOKUP_MS_MAX: Final = 200
"""What one request may look up timestamps for; the others are hurried: answered by the starts of
batches…"""
HURRIED_LOOKUP_BATCHES_MAX: Final = 100
"""…after so many headers at most, about an index interval of small batches."""
WALKED_RECORDS_MAX: Final = 100_000
"""Records of one batch that the loop looks at, for their keys or for a timestamp, or the thread of
all reads by HTTP: a tenth of a second. A compressed batch of 1 MiB may hold millions, which would
stop the broker, or all readers, for that long."""
WALKED_ALWAYS_RECORDS_MAX: Final = 8
"""Records of a batch that is not packed whose timestamps are looked at whatever its header says:
three microseconds at most, of some 50 that a request takes."""
UNCHARGED_WALK_BYTES_MAX: Final = 64 * KIB
"""A larger batch whose records are looked at keeps its connection waiting as long as that took."""
NAMED_RECORDS_MAX: Final = 10_000
"""Records that the refusal of one batch names; of more it names none, and clients fail all records
of the batch alike. A name takes some 80 bytes of the answer."""
RECOMPRESSED_BYTES_MAX: Final = 4 * MIB
"""Records of one batch that a leader packs anew for its topic, on the loop: a fifth of a second
with gzip. Producers' batches have 16 KiB to 1 MiB."""
PACKING_MS_MAX: Final = 400
"""What the requests of one connection may have batches packed anew, or unpacked, at a stretch."""
ZSTD_LEVEL_MAX: Final = 9
"""With which a leader packs; 4 MiB take some 70 ms. Level 22 would take seven seconds."""
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
THROTTLED_SLICE_BYTES: Final = 256 << 10
"""Bytes of one partition in an answer to a follower that is held back."""
SLOTS_PER_CALL_MAX: Final = 500
"""Topics of an admin request that the controller is asked to decide at once: some 0.2 s."""
METADATA_CACHE_BYTES_MAX: Final = 8 * MIB
"""Encoded Metadata replies kept for repeated questions, and those questions."""
METADATA_CACHE_NAME_BYTES: Final = 64
"""What a name costs in a question: of a topic that was asked for, or that the asker may not see."""
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
"""Groups in one FindCoordinator request…"""
COORDINATOR_KEYS_LENGTH_MAX: Final = 2 * MIB
"""…and characters in their names, which take a tenth of a second."""
ADMIN_TIMEOUT_MS: Final = 30_000
"""Wait for the controller where a request carries no time-out of its own."""
DEPARTED_BROKER_LISTED_MS: Final = 10_000
"""How long Metadata goes on naming the address of a broker that has gone out of service."""
NEW_LEADER_MS: Final = 1_000
"""How long a leader is new: what clients sent before it had heard of itself may still be coming."""
REFUSED_BEFORE_GAP_MS: Final = 10_000
"""How long after a batch was refused, for something that passes, a gap may be for want of it."""
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
GROUP_OFFSETS_BYTES_MAX: Final = 512 * MIB
"""What all groups of a broker take with their committed offsets, members aside: some five million
offsets. Beyond, no group and no offset is added."""
GROUP_OVERHEAD_BYTES: Final = KIB + 256
"""What a group takes without members and offsets, about."""
TOPIC_OFFSETS_BYTES: Final = 512
"""What a topic takes that a group has offsets for, beside the names of both, about."""
COMMITTED_OFFSET_BYTES: Final = 96
"""What a committed offset takes beside its record's value, about."""
STAGED_OFFSET_BYTES: Final = 512
"""What an offset takes in an open transaction beside its record's value, about."""
COMMITS_UNDECIDED_BYTES_MAX: Final = 256 * MIB
"""Offsets of all groups that wait for the high watermark, or for the end of a transaction; beyond,
commits are refused."""
MEMBER_OVERHEAD_BYTES: Final = KIB
"""What a member takes beside its protocols and its assignment, about."""
MEMBER_NAMES_LENGTH: Final = 512
"""Characters in the ids and names of a member, all together, that MEMBER_OVERHEAD_BYTES is for."""
ASSIGNED_PARTITION_BYTES: Final = 150
"""What a partition takes that a member has, or shall have, about."""
PENDING_MEMBER_BYTES: Final = 512
"""What a member id takes that was handed out and not come back with, about."""
PARKED_MEMBERS_MAX: Final = 20_000
"""Joins and syncs of all groups that wait for other members."""
MEMBER_METADATA_BYTES_MAX: Final = MIB
"""What a member may bring along with a join, all its protocols together with their names."""
MEMBER_TOPICS_MAX: Final = 10_000
"""Topics that a member may name: whenever the group or a topic changes, all are looked at."""
SUBSCRIBED_TOPIC_BYTES: Final = 64
"""What a topic that a member names takes beside its characters, about."""
MEMBER_PROTOCOLS_MAX: Final = 100
"""Protocols (assignors) that a member may name in a join; clients know four."""
MEMBER_ID_PREFIX_MAX: Final = 255
"""Characters of a client id or an instance id that a new member id begins with."""
TOPIC_PATTERN_LENGTH_MAX: Final = 16 * KIB
"""Characters of a regular expression that names topics; librdkafka makes one of all of a group."""
TOPIC_PATTERN_BYTES_MAX: Final = 256 * KIB
"""What one such expression may take when it is compiled; one that needs more is refused."""
RESOLVED_TOPICS_A_TURN: Final = 1_000
"""Topics that the authorizer is asked about before others get their turn of the loop."""
RESOLVING_TURN_S: Final = 0.05
"""How long the thread resolves expressions of one group before those of others have their turn."""
COORDINATOR_WRITES_WAITING_MAX: Final = 10_000
"""Batches of one partition that wait for the high watermark; beyond, writes are refused."""
TOMBSTONES_PER_WRITE: Final = 500
"""Offsets removed by one write."""
TOMBSTONES_PER_WRITE_BYTES: Final = 512 * KIB
"""What the tombstones of one write take in a batch at most."""
TOMBSTONE_BYTES_MAX: Final = 320
"""What the tombstone of an offset takes beside the name of its group, at most."""
COORDINATOR_LOADS_AT_ONCE_MAX: Final = 2
"""Partitions of one internal topic that are read at one time."""
COORDINATOR_TIMER_MS: Final = 5
"""Deadlines of a coordinator are kept to within this."""
OFFSETS_PER_FETCH_MAX: Final = 100_000
"""Partitions named in one OffsetFetch, over all of its groups."""
OFFSETS_FOUND_MAX: Final = 500_000
"""Offsets in one reply to OffsetFetch, those of groups that are asked for everything included."""
OFFSETS_A_TURN: Final = 10_000
"""Offsets that a fetch looks up at once; for more, others get their turn of the loop between."""
GROUPS_PER_REQUEST_MAX: Final = 10_000
"""Groups in one request that describes, deletes or asks for the offsets of many."""

# Transactions.
TRANSACTIONAL_IDS_PER_SHARD_MAX: Final = 50_000
"""Transactional ids in one partition of `__transaction_state`; beyond, no new ones are taken."""
TRANSACTIONAL_ID_BYTES_MAX: Final = 4 * KIB
"""Longer ids are refused: each is kept until it expires."""
TRANSACTIONAL_ID_BYTES_PER_SHARD_MAX: Final = 16 * MIB
"""All ids of one partition together, so that as many as may be there have 335 bytes each."""
TRANSACTIONS_BYTES_MAX: Final = 256 * MIB
"""What all transactional ids of a broker take, with the partitions of their transactions; beyond,
no ids are taken and no partitions added."""
TRANSACTIONAL_ID_OVERHEAD_BYTES: Final = KIB
"""What an id takes beside its characters, about."""
TRANSACTION_PARTITION_BYTES: Final = 512
"""What a partition of a transaction takes at most, the name of its topic included."""
TRANSACTION_PARTITIONS_MAX: Final = 10_000
"""Partitions in one transaction; beyond, none are added."""
TRANSACTION_PATTERN_LENGTH_MAX: Final = 1_000
"""Characters of the regular expression that transactional ids are listed by."""
TRANSACTION_PATTERN_BYTES_MAX: Final = MIB
"""What such an expression may take compiled."""
TRANSACTIONAL_IDS_PER_REQUEST_MAX: Final = 10_000
"""Transactional ids that one request describes."""
DESCRIBED_A_TURN: Final = 5_000
"""Ids, partitions, configs or producers that are told of at once; for more, others get their turn
of the loop between."""
DESCRIBED_MAX: Final = 500_000
"""Partitions of transactions, or producers of partitions, in one reply: some 100 MB of objects."""
TRANSACTION_WRITE_TIMEOUT_MS: Final = 5_000
"""How long a producer waits for the replicas of its coordinator before it is told to ask again."""
UNDECIDED_RECORDS_WAIT_MS: Final = 5_000
"""How long DeleteRecords waits at most for the end of transactions that it would cut into."""
TRANSACTION_COMPLETION_RETRY_MS: Final = 500
"""Pause before a record that could not be written, and that nobody waits for, is tried again."""
TRANSACTION_REQUEST_WAIT_MS: Final = 15
"""How long a client's request waits for what is under way for its transactional id."""
TRANSACTION_REQUESTS_WAITING_MAX: Final = 8
"""Requests for one transactional id that wait so; its producer sends two at a time."""
MARKERS_PER_REQUEST_MAX: Final = 500
"""Markers that a leader is asked to write at once: some 20 ms of its loop."""
VERIFICATIONS_MAX: Final = 10_000
"""Questions to coordinators without an answer; beyond, clients are told to come back."""
WAITING_PRODUCE_BYTES_MAX: Final = 64 * MIB
"""Produces that wait for a transaction to be verified; beyond, clients are told to come back."""

# Replication.
FOLLOWER_FETCHES_IN_FLIGHT_MAX: Final = 2
"""One that waits at the leader, and one that has news about a partition."""
FOLLOWER_REPLY_BUFFER_BYTES: Final = 64 * KIB
"""A follower's receive buffer begins with this and grows to the size of what the leader sends."""
NEAR_ROUND_TRIP_US: Final = 1_000
"""Who is nearer gets a send buffer of its own, unless a setting says how large one is."""
NEAR_SEND_BUFFER_BYTES: Final = 256 * KIB
"""The kernel grows the buffer to megabytes for a client that is slower than `sendfile`, which costs
broker and client more for each byte; most likely these have left the processor's caches by the time
the client takes them. A buffer goes out in each round trip, so it bounds who is far."""
PEER_REPLY_BYTES_MAX: Final = 2**31 - 1
"""A reply of another broker: it has one batch whole, which may be as large as a request to it
(`socket.request.max.bytes`), and more around it."""
FOLLOWER_SOCKET_BUFFER_BYTES: Final = 2 * MIB
"""Both ends of a follower's connection: a reply then needs few turns of either loop."""
ISR_PROPOSALS_PER_CALL_MAX: Final = 1_000
HELD_REQUEST_BYTES_MAX: Final = 64 * MIB
"""Requests that wait until a broker that was stopped knows that it still leads."""
HELD_REQUEST_OVERHEAD_BYTES: Final = KIB
"""What such a request takes beside its bytes, about."""

# Background work.
DISK_THREADS: Final = 4
"""Threads that fsync, write out and unlink."""
FLUSHES_AT_ONCE_MAX: Final = 3
"""Logs being fsynced at one time, so that a thread is left for write-out."""
HOUSEKEEPING_SLICE_MS: Final = 5
"""How long retention and expiry hold the loop before others run."""
FAILED_DEADLINE_MS: Final = 1_000
"""After so long a group is looked at again whose deadline could not be met."""
LOG_DIRECTORY_ROOM_BYTES: Final = 16 * MIB
"""What must have become free on a full disk before its logs take records again."""
SEGMENTS_DELETED_A_TURN: Final = 100
"""Segments of a log that retention renames before others get their turn of the loop."""
KEPT_CONFIGS_MAX: Final = 1_000
"""Different sets of topic overrides whose log settings are remembered."""

# HTTP API.
REST_CONNECTIONS_MAX: Final = 1_000
"""Connections to the HTTP API; one more ends the longest idle one, or is answered 503."""
REST_HEAD_LINE_BYTES_MAX: Final = 16 * KIB
"""The first line of a request: a path, and a query that may name some hundred topics."""
REST_HEAD_FIELD_BYTES_MAX: Final = 17 * KIB
"""A header: a token of TOKEN_BYTES_MAX, and its name."""
REST_HEAD_FIELDS_MAX: Final = 64
REST_HEAD_BYTES_MAX: Final = 40 * KIB
"""The head of a request, or the trailers of a body."""
REST_ACCEPT_LENGTH_MAX: Final = KIB
"""How much is looked at of what a client accepts, in a millisecond; browsers send 200 letters."""
REST_PIPELINED_MAX: Final = 2
"""Requests of a connection that may wait while one is answered; more stay with the kernel."""
REST_RECEIVE_BYTES: Final = 64 * KIB
"""What a connection is read at a time."""
REST_REQUESTS_MAX: Final = 1_000
"""Requests to the HTTP API that are being answered; one more is answered 429."""
REST_KEEPALIVE_S: Final = 75
"""How long a connection may wait for its next request, or take to send the head of one."""
REST_BODY_BYTES_MAX: Final = 16 * MIB
"""A request's body, as sent and unpacked; a stream of records may be of any length."""
REST_DOCUMENT_BYTES_MAX: Final = MIB
"""A body that is one JSON document, such as a topic to create, and what a v2 body holds around its
records: it is parsed whole, which takes some 10 ms."""
REST_DOCUMENT_COMMAS_MAX: Final = 50_000
"""What such a document may have of them, and so of numbers, of which each is held against a schema:
some 200 ms, in a thread."""
REST_RECORD_BYTES_MAX: Final = 2 * MIB
"""A record as JSON: a batch of the default `max.message.bytes` in base64, and room around it."""
REST_RECORD_TOKENS_MAX: Final = 50_000
"""Texts, objects and arrays in a record as JSON: some 20 ms of parsing."""
REST_KEY_BYTES_MAX: Final = 64 * KIB
"""A record's key: the hash that chooses its partition takes some 10 ms."""
REST_JSON_DEPTH_MAX: Final = 100
REST_RECORDS_PER_REQUEST_MAX: Final = 100_000
"""Records in one v2 body."""
REST_BATCH_RECORDS_MAX: Final = 500
"""Records of a stream that go on their way to the log together."""
REST_BATCH_BYTES_MAX: Final = 512 * KIB
"""The same in bytes, and the size of a batch; a larger record has a batch of its own."""
REST_MEMORY_BYTES: Final = 64 * MIB
"""Bodies of all requests to the HTTP API that wait or are being worked on; beyond, 429."""
REST_STREAM_IDLE_S: Final = 300
"""How long a stream of records may bring nothing."""
REST_WRITE_STALL_S: Final = 30
"""How long the reader of an answer may take nothing of it."""
REST_REQUEST_TIMEOUT_MS: Final = 30_000
"""How long a request may take where it says nothing else; Kafka's `request.timeout.ms`."""
REST_SLICE_MS: Final = 2
"""How long a request holds the loop before others get their turn."""
REST_GZIP_BYTES_MIN: Final = KIB
"""Smaller answers are not compressed."""
REST_PEER_CONNECTIONS_MAX: Final = 64
"""Connections to one other broker on behalf of HTTP clients; more requests wait their turn."""
REST_READ_TIMEOUT_MS: Final = 10_000
"""How long a read by HTTP waits for records where it says nothing else."""
REST_READ_TIMEOUT_MAX_MS: Final = 60_000
"""The longest: proxies cut off what is silent for longer."""
REST_READ_HOP_MS: Final = 500
"""What a read has at least to learn from another broker what is there."""
REST_READ_BYTES: Final = MIB
"""What a read by HTTP answers where it says nothing else, as JSON."""
REST_READ_BYTES_MAX: Final = 16 * MIB
REST_READ_STEP_BYTES: Final = 256 * KIB
"""What a read fetches and renders at a time."""
REST_READ_PEER_CONNECTIONS_MAX: Final = 256
"""Connections to one other broker that wait for records there: one for each offset that is waited
for. A read that finds none answers at its deadline what was there when it began."""
REST_TAIL_BYTES: Final = 64 * KIB
"""Events that a reader of a stream is sent at a time; more waits in the log."""
REST_HEARTBEAT_S: Final = 15
"""A stream of events is never silent for longer, so that proxies keep it."""
REST_INSTANCES_MAX: Final = 500
"""Consumer instances of a broker: each sends a heartbeat every few seconds. One more is 429."""
REST_INSTANCE_REQUESTS_MAX: Final = 8
"""Requests that one instance answers in turn; one more is answered 429."""
REST_INSTANCE_NAME_LENGTH_MAX: Final = 200
REST_INSTANCE_PARTITIONS_MAX: Final = 5_000
"""Partitions that a request about an instance names."""
REST_INSTANCE_REBALANCE_MS: Final = 30_000
"""How long an instance may take to give up partitions, of which it commits offsets first."""
REST_INSTANCE_CALL_S: Final = 5.0
"""How long an instance asks coordinators and leaders before it looks after its heartbeat again."""
REST_AUTO_COMMIT_INTERVAL_S: Final = 5.0
"""Kafka's `auto.commit.interval.ms` of consumers."""
REST_TOKENS_REMEMBERED_MAX: Final = 1_000
REST_TOKEN_REMEMBERED_S: Final = 60
"""Bearer tokens that were good a moment ago, and for how long they are not looked at again."""
AUTHORIZER_MEMO_MAX: Final = 50_000
"""Answers that the authorizer remembers, some 300 bytes each and the name; it forgets all of them
when it has so many, and when a rule changes."""
AUTHORIZER_MEMO_NAME_LENGTH_MAX: Final = 249
"""Longer names are judged anew each time: no topic has one, and a client may ask for any."""
DENIALS_LOGGED_PER_WINDOW: Final = 100
"""Different denials that the audit log tells in a window; more are counted."""
DENIALS_WINDOW_MS: Final = 10_000
ACLS_PER_REQUEST_MAX: Final = 10_000
"""Rules of one CreateAcls, as in Kafka."""
ACL_FILTERS_PER_REQUEST_MAX: Final = 1_000
USERS_PER_REQUEST_MAX: Final = 1_000
"""Users of one request about SCRAM credentials: what changes goes to the controller in one call."""
QUOTA_METERS_MAX: Final = 20_000
"""Clients with a quota whose use is told apart, some 300 bytes each; of more, the new ones share a
meter for each quota."""
QUOTA_SWEEP_S: Final = 30
"""How often meters of clients that were quiet are looked for."""
DELAYED_SOCKETS_MAX: Final = 1_000
"""Connections of addresses that connect too often, which are closed after a while."""
QUOTA_ENTITIES_PER_REQUEST_MAX: Final = 1_000
"""Entities of one AlterClientQuotas: what changes goes to the controller in one call."""
ROLE_JOURNAL_BYTES_MAX: Final = 128 * MIB
"""Bytes of the journal of roles; a broker whose journal would need more does not go on after it was
killed, and waits for the controller instead."""
LOGIN_AFTER_MUTE_S: Final = 2.0
"""A client whose login ends while a quota holds it back has so long afterwards to repeat it."""
REFUSED_LOGIN_LINGER_S: Final = 0.2
"""How long a connection stays after the answer that a login failed; nothing is read from it."""

# Moves between log directories.
MOVE_STEP_BYTES: Final = 4 * MIB
"""What is copied at once to another log directory; then whoever waits for the thread has a turn."""
MOVE_READ_BYTES: Final = 256 * KIB
MOVE_TAIL_BYTES_MAX: Final = 256 * KIB
"""What may be missing when a move ends: the loop copies it in one turn."""
MOVE_ROOM_BYTES: Final = 64 * MIB
"""What a move leaves free on the disk that it copies to."""
PREFERRED_DIRECTORIES_MAX: Final = 10_000
"""Replicas to come of which it is remembered in which log directory somebody wants them."""
