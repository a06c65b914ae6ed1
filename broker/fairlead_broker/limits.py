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
"""Limit of every request but Produce: it is decoded whole, and 100 MiB would take seconds."""
UNPROVED_FRAME_BYTES_MAX: Final = 4 * KIB
"""The largest request to the brokers' listener, and reply from there, before the peer has proved
that it is a broker."""
UNPROVED_UNSENT_BYTES_MAX: Final = 16 * KIB
"""Replies that wait for such a peer; beyond, its next request isn't handled."""
UNPROVED_S: Final = 5
"""How long such a peer may take to prove itself."""
UNPROVED_MAX: Final = 512
UNPROVED_PER_IP_MAX: Final = 256
"""Such peers at once, and from one address; one more, and the oldest is disconnected."""
STRANGER_S: Final = 10
"""How long a client of a listener with TLS or SASL may take to authenticate, from its accept on."""
STRANGERS_MAX: Final = 1_000
STRANGERS_PER_IP_MAX: Final = 500
"""Such clients at once, and from one address; one more, and the oldest is disconnected."""
STRANGER_UNSENT_BYTES_MAX: Final = 16 * KIB
"""Replies that wait for such a client; beyond, its next request isn't handled."""
PLAIN_PASSWORD_BYTES_MAX: Final = 1_024
PLAIN_REMEMBERED_MAX: Final = 1_000
"""Passwords that were right a moment ago, which are not derived again."""
LOGINS_WAITING_MAX: Final = 1_000
"""Logins whose passwords or tokens wait for the thread that checks them."""
SALT_LOOKS_MAX: Final = 64
"""Kinds of salts and iterations of users among which one who is not there gets his."""
LOGIN_FAILURES_PER_S: Final = 10
LOGIN_FAILURES_BURST: Final = 50
"""Wrong passwords from one address; after more, its passwords are refused without a check."""
LOGIN_FAILING_ADDRESSES_MAX: Final = 10_000
"""Addresses for which wrong passwords are counted."""
TOKEN_BYTES_MAX: Final = 16 * KIB
"""The longest token of OAUTHBEARER, and the longest message of any login."""
TOKEN_KEY_ID_LENGTH_MAX: Final = 1_000
TOKEN_LIFE_S_MAX: Final = 366 * 86_400
"""How far in the future the end of a token may be."""
JWKS_BYTES_MAX: Final = 256 * KIB
JWKS_TIMEOUT_S: Final = 10
JWKS_EXPEDITED_S: Final = 30
"""Shortest time between two reads of the keys because of a token with an unknown key."""
TLS_SEND_BYTES: Final = 128 * KIB
"""Bytes of a reply that are encrypted at once and then wait for the socket."""
FRAME_DEADLINE_S: Final = 30
"""How long the bytes of one frame may take to arrive, first to last…"""
FRAME_RATE_MIN_BYTES_PER_S: Final = 256 * KIB
"""…plus one second for each so many bytes that have arrived."""
RECEIVE_BUFFER_BYTES: Final = 256 * KIB
"""The receive buffer that all connections share."""
CARRY_BYTES_MAX: Final = 4 * KIB
"""An incomplete frame up to this size waits in place; larger ones get a buffer of their own."""
FRAME_STEP_BYTES: Final = MIB + 64 * KIB
"""A frame's own buffer starts no larger than this and grows only as its bytes arrive."""
FRAME_BUFFERS_KEPT_BYTES: Final = 16 * MIB
"""Frame buffers that are kept and used again for large frames."""
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
CONNECTION_CREATIONS_BURST_S: Final = 12.5
"""They are as many as the rate allows in this time, and never more than that number."""
INTERNAL_CREATIONS_PER_S: Final = 1_000
INTERNAL_CREATIONS_BURST: Final = 2_500
"""The same for the brokers' listener, so that brokers do not wait for clients."""
DESCRIPTORS_KEPT_MAX: Final = 1_024
"""Descriptors reserved for logs and brokers; an eighth of all, if the process may have few."""
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
"""Longer client ids are refused, because log lines and labels contain them."""

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
"""Buffers in one send: below the kernel's IOV_MAX (1,024)."""
COPIED_SLICE_BYTES: Final = 16 * KIB
"""Smaller slices are copied beside their header; for larger ones `sendfile` is cheaper."""

# Cold reads.
READ_AHEAD_THREADS: Final = 4
READ_AHEAD_BYTES: Final = MIB
"""What one job of the read-ahead pool brings into the page cache."""

# Requests.
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
PARTITIONS_READ_AGAIN_MAX: Final = 16
"""A waiting fetch of at most so many partitions reads all of them again when one advances. A larger
fetch reads only those that have advanced, until it has enough: each takes some 2 µs."""
PARKED_FETCHES_MAX: Final = 10_000
PARKED_PRODUCES_MAX: Final = 10_000
PARKED_KEYS_MAX: Final = 500_000
"""Partitions that all parked requests of one kind wait for, in sum."""
PARKED_WAIT_MAX_MS: Final = 300_000
"""How long a client's Fetch or DeleteRecords waits at most, whatever it asks for."""
PURGATORY_TIMER_MS: Final = 2
"""How late a parked request may be completed after its deadline."""
FETCH_SESSION_PARTITIONS_MAX: Final = 200_000
"""Partitions in all fetch sessions together; beyond, new sessions are refused."""
FETCH_SESSION_EVICTION_MS: Final = 120_000
"""A fetch session unused for this long may be evicted by any other."""

# Log lines that peers cause.
PEER_LOG_LINES_PER_WINDOW: Final = 20
PEER_LOG_WINDOW_S: Final = 10
"""Lines logged for each reason in a window; the rest is only counted."""

# Storage.
RECENT_BATCHES_MAX: Final = 256
"""Newest batches of a log whose positions stay in memory, so that tail readers touch no index."""
PRODUCERS_PER_LOG_MAX: Final = 10_000
"""Idempotent producers whose state a log keeps; the least recently active one is dropped first."""
PRODUCERS_MAX: Final = 500_000
"""Idempotent producers whose state all logs of a broker keep, some 300 MB; if there are more, the
logs with most of them drop the least recently active ones."""
RECENT_PRODUCERS_AT_ONCE: Final = 500
"""Producers of a log of which a snapshot in memory takes the loop two milliseconds, a few MiB
apart. If there are more, the snapshots are as many times further apart. Three are kept, each with
50 to 230 bytes of a producer."""
RETRIED_WITHIN_MS: Final = 600_000
"""How long a producer may retry a batch: librdkafka gives up after five minutes, Java after two."""
INDEX_PAGES_MAX: Final = 1_024
"""Pages (4 KiB) of sealed indexes that all logs of a process keep together."""
SEALED_FILES_OPEN_MAX: Final = 2_048
"""Read descriptors that all logs keep open for sealed segments."""
LOG_DIRECTORIES_MAX: Final = 64
"""Disks of one broker; each takes time of a thread, and an id in the broker's registration."""
SMALL_FILE_BYTES_MAX: Final = 64 * MIB
"""Size of checkpoints, snapshots and metadata files; larger files are not read."""
NEWLY_CHECKPOINTED_LOGS_MAX: Final = 200
"""New logs that one checkpoint may contain: it writes a file for each, 10 ms of the loop in sum."""
LOOKUP_DECOMPRESSED_MAX: Final = 16 * MIB
"""Size to which a batch may be decompressed while a timestamp is looked up inside it."""
LOOKUP_BATCHES_MAX: Final = 50_000
"""Batch headers that one lookup of a timestamp reads, in some 50 ms. It then answers with the
offset that it has reached, before the record. So many batches lie between two entries of a time
index only if they have the same or earlier timestamps."""
LOOKUP_MS_MAX: Final = 200
"""How long one request may look up timestamps. Its further lookups are hurried: they answer with
the starts of batches…"""
HURRIED_LOOKUP_BATCHES_MAX: Final = 100
"""…after at most so many headers, about an index interval of small batches."""
WALKED_RECORDS_MAX: Final = 100_000
"""Records of one batch whose keys or timestamps the event loop reads, or the thread of all reads by
HTTP: a tenth of a second. A compressed batch of 1 MiB may hold millions, and would stop the broker,
or all readers, while they are read."""
WALKED_ALWAYS_RECORDS_MAX: Final = 8
"""Records of an uncompressed batch whose timestamps are read whatever its header says: at most 3
µs, of some 50 µs that a request takes."""
UNCHARGED_WALK_BYTES_MAX: Final = 64 * KIB
"""For a larger batch whose records are read, its connection then waits as long as that took."""
NAMED_RECORDS_MAX: Final = 10_000
"""Records that the error for one batch lists. If more are wrong it lists none, and clients then
fail all records of the batch. An entry takes some 80 bytes of the answer."""
RECOMPRESSED_BYTES_MAX: Final = 4 * MIB
"""Size of one batch that a leader compresses again for its topic, on the loop: a fifth of a second
with gzip. Producers' batches have 16 KiB to 1 MiB."""
PACKING_MS_MAX: Final = 400
"""How long requests of one connection may have batches compressed or decompressed in a row."""
ZSTD_LEVEL_MAX: Final = 9
"""Highest level at which a leader compresses; 4 MiB take some 70 ms. Level 22 would take 7 s."""
CLEANER_DECOMPRESSED_MAX: Final = 64 * MIB
"""Size to which a batch may be decompressed while its log is compacted."""
CLEANER_MESSAGE_BYTES_MAX: Final = 4 * MIB
"""One line of the compacting child process: it may name all segments of a log."""
CLEANER_SILENCE_S: Final = 600
"""How long the compacting child process may be silent, such as in an fsync, before it is killed."""
CLEANER_BATCH_BYTES_MAX: Final = 128 * MIB
"""The largest batch that compaction reads; no request can contain one as large."""
CLEANER_ROOM_LEFT_BYTES: Final = 64 * MIB
"""Room on the disk that compaction leaves to appends while both old and new files exist."""

# Metadata and admin requests.
TOPICS_PER_REQUEST_MAX: Final = 10_000
THROTTLED_SLICE_BYTES: Final = 256 << 10
"""Bytes of one partition in an answer to a throttled follower."""
SLOTS_PER_CALL_MAX: Final = 500
"""Topics of an admin request that one request to the controller contains: some 0.2 s."""
METADATA_CACHE_BYTES_MAX: Final = 8 * MIB
"""Encoded Metadata replies that are kept for repeated requests, and these requests."""
METADATA_CACHE_NAME_BYTES: Final = 64
"""Bytes counted for the name of a topic that was asked for, or that the client may not see."""
TOPIC_CREATIONS_MAX: Final = 100
"""Topics that are automatically created at one time."""
DESCRIBED_PARTITIONS_MAX: Final = 2_000
"""Partitions in one DescribeTopicPartitions reply; a cursor leads to the next."""
ADMIN_TIMEOUT_MS_MAX: Final = 300_000
"""Longest wait for the controller that a client's time-out can ask for."""
METRIC_TOPICS_MAX: Final = 200
"""Topics with their own metrics, the first by name; sums count all topics."""
METRIC_PARTITIONS_MAX: Final = 1_000
"""Partitions with their own metrics, the first by topic and index; sums count all partitions."""
METRIC_BROKERS_MAX: Final = 50
"""Followers whose lag has its own metric."""
METRIC_GROUPS_A_TURN: Final = 1_000
"""Groups that a scrape counts before other work gets its turn of the loop."""
METRIC_PARTITIONS_A_TURN: Final = 200
"""Partitions that a scrape counts before other work gets its turn of the loop."""
PARTITION_CHANGES_PER_TURN_MS: Final = 20
"""How long one turn of the loop creates, opens and leads partitions before other work runs."""
COORDINATOR_KEYS_MAX: Final = 10_000
"""Groups in one FindCoordinator request…"""
COORDINATOR_KEYS_LENGTH_MAX: Final = 2 * MIB
"""…and characters in the names of groups, or transactional ids, of any request: their hashes take
hundredths of a second."""
ADMIN_TIMEOUT_MS: Final = 30_000
"""Wait for the controller if a request has no time-out."""
DEPARTED_BROKER_LISTED_MS: Final = 10_000
"""How long Metadata still lists the address of a broker that has gone out of service."""
NEW_LEADER_MS: Final = 1_000
"""How long a leader is new: requests that clients sent before it knew of itself may still
arrive."""
REFUSED_BEFORE_GAP_MS: Final = 10_000
"""How long a gap in sequences may come from a batch that was refused for a temporary reason."""
LEADER_DOUBT_MS: Final = 300
"""How long Metadata waits for the controller's decision on a leader that has hung up."""

# Groups.
GROUP_PENDING_MEMBERS_MAX: Final = 1_000
"""Member ids of one group that were given out and not used yet; the oldest is dropped first."""
GROUPS_PER_SHARD_MAX: Final = 50_000
"""Groups in one partition of the offsets topic; beyond, no new ones are made."""
GROUP_MEMBERS_MAX: Final = 10_000
"""Members of a group, even if `group.max.size` allows more."""
GROUP_MEMBERS_BYTES_MAX: Final = 512 * MIB
"""Metadata and assignments of all members of all groups of a broker; beyond, no member joins."""
GROUP_OFFSETS_BYTES_MAX: Final = 512 * MIB
"""Memory of all groups of a broker with their committed offsets, without members: some 3.5 million
offsets. Beyond, no group and no offset is added."""
GROUP_OVERHEAD_BYTES: Final = KIB + 256
"""Approximate memory of a group without members and offsets."""
TOPIC_OFFSETS_BYTES: Final = 512
"""Approximate memory of a topic in a group's offsets, beside the names of both."""
COMMITTED_OFFSET_BYTES: Final = 96
"""Approximate memory of a committed offset beside its record's value."""
STAGED_OFFSET_BYTES: Final = 512
"""Approximate memory of an offset in an open transaction beside its record's value."""
COMMITS_UNDECIDED_BYTES_MAX: Final = 256 * MIB
"""Offsets of all groups that wait for the high watermark, or for the end of a transaction; beyond,
commits are refused."""
MEMBER_OVERHEAD_BYTES: Final = KIB
"""Approximate memory of a member beside its protocols and its assignment."""
MEMBER_NAMES_LENGTH: Final = 512
"""Characters in the ids and names of a member, all together, that MEMBER_OVERHEAD_BYTES is for."""
ASSIGNED_PARTITION_BYTES: Final = 150
"""Approximate memory of a partition in a member's present or target assignment."""
PENDING_MEMBER_BYTES: Final = 512
"""Approximate memory of a member id that was given out and not used yet."""
PARKED_MEMBERS_MAX: Final = 20_000
"""Joins and syncs of all groups that wait for other members."""
MEMBER_METADATA_BYTES_MAX: Final = MIB
"""Metadata in a member's JoinGroup: all its protocols with their names."""
MEMBER_TOPICS_MAX: Final = 10_000
"""Topics that a member may subscribe to: all are read whenever the group or a topic changes."""
MEMBER_PARTITIONS_MAX: Final = 100_000
"""Partitions that a member of KIP-848 says it has: to take note of so many holds all others up for
a tenth of a second."""
SUBSCRIBED_TOPIC_BYTES: Final = 64
"""Approximate memory of a topic in a subscription beside its characters."""
MEMBER_PROTOCOLS_MAX: Final = 100
"""Protocols (assignors) that a member may name in a join; clients know four."""
MEMBER_ID_PREFIX_MAX: Final = 255
"""Characters of the client id or instance id at the beginning of a new member id."""
TOPIC_PATTERN_LENGTH_MAX: Final = 16 * KIB
"""Characters of a regular expression for topics; librdkafka joins all of a subscription in one."""
TOPIC_PATTERN_BYTES_MAX: Final = 256 * KIB
"""Memory of one such expression when it is compiled; one that needs more is refused."""
RESOLVED_TOPICS_A_TURN: Final = 1_000
"""Topics that the authorizer is asked about before other work gets its turn of the loop."""
RESOLVING_TURN_S: Final = 0.05
"""How long the thread resolves expressions of one group before those of the next group."""
COORDINATOR_WRITES_WAITING_MAX: Final = 10_000
"""Batches of one partition that wait for the high watermark; beyond, writes are refused."""
TOMBSTONES_PER_WRITE: Final = 500
"""Offsets removed by one write."""
TOMBSTONES_PER_WRITE_BYTES: Final = 512 * KIB
"""Most bytes that the tombstones of one write take in a batch."""
TOMBSTONE_BYTES_MAX: Final = 320
"""Most bytes that the tombstone of an offset takes beside the name of its group."""
COORDINATOR_LOADS_AT_ONCE_MAX: Final = 2
"""Partitions of one internal topic that are read at one time."""
COORDINATOR_TIMER_MS: Final = 5
"""How late a coordinator may act after a deadline."""
OFFSETS_PER_FETCH_MAX: Final = 100_000
"""Partitions named in one OffsetFetch, over all of its groups."""
OFFSETS_FOUND_MAX: Final = 500_000
"""Offsets in one reply to OffsetFetch, including groups of which all offsets are asked for."""
OFFSETS_A_TURN: Final = 10_000
"""Offsets that an OffsetFetch looks up at once; then other work gets its turn of the loop."""
GROUPS_PER_REQUEST_MAX: Final = 10_000
"""Groups in one request that describes, deletes or asks for the offsets of many."""

# Transactions.
TRANSACTIONAL_IDS_PER_SHARD_MAX: Final = 50_000
"""Transactional ids in one partition of `__transaction_state`; beyond, no new ones are taken."""
TRANSACTIONAL_ID_BYTES_MAX: Final = 4 * KIB
"""Longer transactional ids are refused, because each is kept until it expires."""
TRANSACTIONAL_ID_BYTES_PER_SHARD_MAX: Final = 16 * MIB
"""All transactional ids of one partition: with the largest number, 335 bytes for each."""
TRANSACTIONS_BYTES_MAX: Final = 256 * MIB
"""Memory of all transactional ids of a broker with the partitions of their transactions; beyond, no
ids and no partitions are added."""
TRANSACTIONAL_ID_OVERHEAD_BYTES: Final = KIB
"""Approximate memory of a transactional id beside its characters."""
TRANSACTION_PARTITION_BYTES: Final = 512
"""Most memory of a partition of a transaction, including the name of its topic."""
TRANSACTION_PARTITIONS_MAX: Final = 10_000
"""Partitions in one transaction; beyond, none are added."""
TRANSACTION_PATTERN_LENGTH_MAX: Final = 1_000
"""Characters of the regular expression that transactional ids are listed by."""
TRANSACTION_PATTERN_BYTES_MAX: Final = MIB
"""Memory of such an expression when it is compiled."""
TRANSACTIONAL_IDS_PER_REQUEST_MAX: Final = 10_000
"""Transactional ids that one request describes."""
DESCRIBED_A_TURN: Final = 5_000
"""Ids, partitions, configs or producers that are described at once; then other work gets its turn
of the loop."""
DESCRIBED_MAX: Final = 500_000
"""Partitions of transactions, or producers of partitions, in one reply: some 100 MB of objects."""
TRANSACTION_WRITE_TIMEOUT_MS: Final = 5_000
"""How long a producer waits for replicas of its coordinator's partition before it has to retry."""
UNDECIDED_RECORDS_WAIT_MS: Final = 5_000
"""Longest time that DeleteRecords waits for the end of transactions that it would cut."""
TRANSACTION_COMPLETION_RETRY_MS: Final = 500
"""Pause before the next try to write a record that failed and that no client waits for."""
TRANSACTION_REQUEST_WAIT_MS: Final = 15
"""How long a client's request waits for another operation on its transactional id."""
TRANSACTION_REQUESTS_WAITING_MAX: Final = 8
"""Requests for one transactional id that wait in this way; its producer sends two at a time."""
MARKERS_PER_REQUEST_MAX: Final = 500
"""Markers that a leader is asked to write at once: some 20 ms of its loop."""
VERIFICATIONS_MAX: Final = 10_000
"""Requests to coordinators without an answer; beyond, clients are told to retry."""
WAITING_PRODUCE_BYTES_MAX: Final = 64 * MIB
"""Produces that wait for the verification of a transaction; beyond, clients are told to retry."""

# Replication.
FOLLOWER_FETCHES_IN_FLIGHT_MAX: Final = 2
"""One fetch that waits at the leader, and one with changes of its partitions."""
FOLLOWER_REPLY_BUFFER_BYTES: Final = 64 * KIB
"""A follower's receive buffer begins with this and grows to the size of what the leader sends."""
NEAR_ROUND_TRIP_US: Final = 1_000
"""A client that is nearer gets the send buffer below, unless a setting has its size."""
NEAR_SEND_BUFFER_BYTES: Final = 256 * KIB
"""The kernel grows the buffer to megabytes for a client that is slower than `sendfile`, which costs
broker and client more for each byte; most likely these bytes have left the processor's caches by
the time the client takes them. One buffer is sent in each round trip, so it would limit clients
that are far away."""
PEER_REPLY_BYTES_MAX: Final = 2**31 - 1
"""A reply of another broker: it contains at least one whole batch, which may be as large as a
request to that broker (`socket.request.max.bytes`), and more around it."""
FOLLOWER_SOCKET_BUFFER_BYTES: Final = 2 * MIB
"""Both ends of a follower's connection: a reply then needs few turns of either loop."""
ISR_PROPOSALS_PER_CALL_MAX: Final = 1_000
REPLICAS_PER_REPORT_MAX: Final = 1_000
"""Replicas that one call tells the controller of as lost, or with the end of their logs: it decides
on all of them before it hears anybody else."""
FULL_REPLICAS_PER_REPORT_MAX: Final = 10_000
"""Replicas without room that one call tells of: the controller takes no call with 40,000."""
HELD_REQUEST_BYTES_MAX: Final = 64 * MIB
"""Requests that wait until a broker whose process stood still knows that it still leads."""
HELD_REQUEST_OVERHEAD_BYTES: Final = KIB
"""Approximate memory of such a request beside its bytes."""

# Background work.
DISK_THREADS: Final = 4
"""Threads that fsync, write out and unlink."""
FLUSHES_AT_ONCE_MAX: Final = 3
"""Logs being fsynced at one time, so that a thread is left for write-out."""
HOUSEKEEPING_SLICE_MS: Final = 5
"""How long retention and expiry hold the loop before other work runs."""
FAILED_DEADLINE_MS: Final = 1_000
"""Time after which a group whose deadline could not be met is tried again."""
LOG_DIRECTORY_ROOM_BYTES: Final = 16 * MIB
"""Bytes that have to become free on a full disk before its logs take records again."""
SEGMENTS_DELETED_A_TURN: Final = 100
"""Segments of a log that retention renames before other work gets its turn of the loop."""
KEPT_CONFIGS_MAX: Final = 1_000
"""Different sets of topic configs whose log settings are kept."""

# HTTP API.
REST_CONNECTIONS_MAX: Final = 1_000
"""Connections to the HTTP API; a further one closes the longest idle one, or is answered 503."""
REST_HEAD_LINE_BYTES_MAX: Final = 16 * KIB
"""The first line of a request: a path, and a query that may name some hundred topics."""
REST_HEAD_FIELD_BYTES_MAX: Final = 17 * KIB
"""One header: a token of TOKEN_BYTES_MAX, and its name."""
REST_HEAD_FIELDS_MAX: Final = 64
REST_HEAD_BYTES_MAX: Final = 40 * KIB
"""All headers of a request, or the trailers of a body."""
REST_ACCEPT_LENGTH_MAX: Final = KIB
"""Characters of an Accept header that are read, in a millisecond; browsers send 200."""
REST_PIPELINED_MAX: Final = 2
"""Requests of a connection that may wait while one is answered; further ones stay unread."""
REST_RECEIVE_BYTES: Final = 64 * KIB
"""Bytes that are read from a connection at once."""
REST_REQUESTS_MAX: Final = 1_000
"""Requests to the HTTP API that are being answered; a further one is answered 429."""
REST_KEEPALIVE_S: Final = 75
"""How long a connection may wait for its next request, or take to send its headers."""
REST_BODY_BYTES_MAX: Final = 16 * MIB
"""Body of a request, both as sent and decompressed; a stream of records may have any length."""
REST_DOCUMENT_BYTES_MAX: Final = MIB
"""A body that is one JSON document, such as a topic to create, and what a v2 body holds around its
records: it is parsed whole, which takes some 10 ms."""
REST_DOCUMENT_COMMAS_MAX: Final = 50_000
"""Commas in such a document, and so numbers, each of which is checked against a schema: some 200
ms, in a thread."""
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
"""Records of a stream that are produced together."""
REST_BATCH_BYTES_MAX: Final = 512 * KIB
"""The same in bytes, and the size of a batch; a larger record has its own batch."""
REST_MEMORY_BYTES: Final = 64 * MIB
"""Bodies of all requests to the HTTP API that wait or are being worked on; beyond, 429."""
REST_STREAM_IDLE_S: Final = 300
"""How long a stream of records may be silent."""
REST_WRITE_STALL_S: Final = 30
"""How long the reader of an answer may read nothing."""
REST_REQUEST_TIMEOUT_MS: Final = 30_000
"""How long a request may take if it sets no time-out; Kafka's `request.timeout.ms`."""
REST_SLICE_MS: Final = 2
"""How long a request holds the loop before other work gets its turn."""
REST_GZIP_BYTES_MIN: Final = KIB
"""Smaller answers are not compressed."""
REST_PEER_CONNECTIONS_MAX: Final = 64
"""Connections to one other broker on behalf of HTTP clients; more requests wait their turn."""
REST_READ_TIMEOUT_MS: Final = 10_000
"""How long a read by HTTP waits for records if it sets no time-out."""
REST_READ_TIMEOUT_MAX_MS: Final = 60_000
"""Longest such time-out, because proxies close connections that are silent for longer."""
REST_LEADER_ANSWER_MS: Final = 5_000
"""Least time that another broker has for its answer, where the client gets an error without one.

It is not the client's time-out: that says how long to wait for records that do not exist yet.
A broker that has no processor for a second or two still answers.
"""
REST_READ_HOP_MS: Final = 500
"""Least time that a read has to ask another broker what is there, if it can answer without."""
REST_READ_BYTES: Final = MIB
"""Bytes of JSON in the answer to a read by HTTP that sets no size."""
REST_READ_BYTES_MAX: Final = 16 * MIB
REST_READ_STEP_BYTES: Final = 256 * KIB
"""Bytes that a read fetches and renders at once."""
REST_READ_PEER_CONNECTIONS_MAX: Final = 256
"""Connections to one other broker that wait for records there: one for each awaited offset. A read
that gets no connection answers at its deadline with the records that were there when it began."""
REST_TAIL_BYTES: Final = 64 * KIB
"""Bytes of events that a reader of a stream is sent at once; more waits in the log."""
REST_HEARTBEAT_S: Final = 15
"""A stream of events is never silent for longer, so that proxies do not close it."""
REST_INSTANCES_MAX: Final = 500
"""Consumer instances of a broker: each sends a heartbeat every few seconds. Beyond, 429."""
REST_INSTANCE_REQUESTS_MAX: Final = 8
"""Requests that wait for one instance; a further one is answered 429."""
REST_INSTANCE_NAME_LENGTH_MAX: Final = 200
REST_INSTANCE_PARTITIONS_MAX: Final = 5_000
"""Partitions that a request about an instance names."""
REST_INSTANCE_REBALANCE_MS: Final = 30_000
"""How long an instance may take to give up partitions, after it has committed their offsets."""
REST_INSTANCE_CALL_S: Final = 5.0
"""How long an instance asks coordinators and leaders before it sends its heartbeat again."""
REST_AUTO_COMMIT_INTERVAL_S: Final = 5.0
"""Kafka's `auto.commit.interval.ms` of consumers."""
REST_TOKENS_REMEMBERED_MAX: Final = 1_000
REST_TOKEN_REMEMBERED_S: Final = 60
"""How long a bearer token that was valid is not checked again."""
AUTHORIZER_MEMO_MAX: Final = 50_000
"""Answers that the authorizer keeps, some 300 bytes each beside the name. It forgets all of them
when it has so many, and when a rule changes."""
AUTHORIZER_MEMO_NAME_LENGTH_MAX: Final = 249
"""Answers for longer names are not kept: no topic has one, and a client may ask for any."""
DENIALS_LOGGED_PER_WINDOW: Final = 100
"""Different denials that the audit log has in a window; further ones are only counted."""
DENIALS_WINDOW_MS: Final = 10_000
ACLS_PER_REQUEST_MAX: Final = 10_000
"""Rules of one CreateAcls, as in Kafka."""
ACL_FILTERS_PER_REQUEST_MAX: Final = 1_000
USERS_PER_REQUEST_MAX: Final = 1_000
"""Users of one request about SCRAM credentials: one call to the controller has all changes."""
QUOTA_METERS_MAX: Final = 20_000
"""Clients with a quota whose use is measured one by one, some 300 bytes each. Beyond, new clients
share one meter for each quota."""
QUOTA_SWEEP_S: Final = 30
"""How often meters of idle clients are removed."""
DELAYED_SOCKETS_MAX: Final = 1_000
"""Connections of addresses that connect too often: these are closed after a delay."""
QUOTA_ENTITIES_PER_REQUEST_MAX: Final = 1_000
"""Entities of one AlterClientQuotas: one call to the controller has all changes."""
ROLE_JOURNAL_BYTES_MAX: Final = 128 * MIB
"""Size of the journal of roles. A broker whose journal would be larger does not go on after a kill,
and waits for the controller instead."""
JOURNAL_FRAME_BYTES_MAX: Final = 8 * MIB
"""A journal that is cut off in a longer frame is damaged: no message of a session is as long."""
LOGIN_AFTER_WAIT_S: Final = 2.0
"""How long a client may take to log in again whose login expired while a quota muted it, or while a
request of it waited for its answer."""
REFUSED_LOGIN_LINGER_S: Final = 3.0
"""How long a connection stays after the answer that a login failed, unless the client ends it;
nothing is read from it. A client on a busy machine may look for the answer seconds late."""

# Moves between log directories.
MOVE_STEP_BYTES: Final = 4 * MIB
"""Bytes that are copied at once to another log directory; then other work gets the thread."""
MOVE_READ_BYTES: Final = 256 * KIB
MOVE_TAIL_BYTES_MAX: Final = 256 * KIB
"""Bytes that may still be missing at the end of a move: the loop copies them in one turn."""
COPIED_SEGMENTS_BYTES_MAX: Final = 16 * MIB
"""Size of the list of segments that a copy has whole; after a start a larger one counts for
nothing."""
MOVES_AT_ONCE_MAX: Final = 8
"""Replicas that move between log directories at one time, and threads that copy them; never more
than there are directories."""
MOVE_ROOM_BYTES: Final = 64 * MIB
"""Room that a move leaves free on the disk that it copies to."""
PREFERRED_DIRECTORIES_MAX: Final = 10_000
"""Replicas not created yet whose requested log directory is kept."""
