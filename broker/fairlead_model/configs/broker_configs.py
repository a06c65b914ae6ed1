"""The broker configs that are supported: Kafka's names, and `fairlead.*` where Kafka has none.

Dynamic configs may change while brokers run, as in Kafka; the others are read at start.
"""

from dataclasses import replace
from typing import Final

from fairlead_model.configs.config_key import (
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    int_key,
    key_table,
    long_key,
)
from fairlead_model.configs.connection_overrides import (
    CONNECTIONS_PER_IP_OVERRIDES,
    overrides_problem,
)
from fairlead_model.configs.coordinator_configs import COORDINATOR_CONFIGS
from fairlead_model.configs.cordoned_directories import CORDONED_LOG_DIRS, every_problem
from fairlead_model.configs.security_configs import SECURITY_CONFIGS
from fairlead_model.configs.topic_configs import TOPIC_CONFIGS
from fairlead_model.session.session_protocol import (
    HEARTBEAT_INTERVAL_MS,
    HEARTBEATS_PER_SESSION_MIN,
    SESSION_TIMEOUT_MS,
)

_BOOLEAN = ConfigType.BOOLEAN
_INT = ConfigType.INT
_LONG = ConfigType.LONG
_LIST = ConfigType.LIST
_STRING = ConfigType.STRING
_PORT_FREE: Final = "without scheme, such as 127.0.0.1:8080"
REASSIGNMENT_BYTES_PER_SECOND: Final = 32 << 20
_FREEZE_TIMEOUT_MS_MIN: Final = 1_000
"""The controller is asked twice a second, so a shorter silence means nothing."""


def _topic_default(topic_config: str, name: str | None = None) -> ConfigKey:
    """Derive the broker config that sets a topic config's default from the topic's row."""
    key = TOPIC_CONFIGS[topic_config]
    return replace(
        key,
        name=name or key.synonyms[0].name,
        doc=f"Default of the topic config {topic_config}. {key.doc}",
        synonyms=(),
        is_dynamic=True,
    )


def _freeze_timeout_problem(text: str) -> str | None:
    is_too_short = 0 < int(text) < _FREEZE_TIMEOUT_MS_MIN
    return f"at least {_FREEZE_TIMEOUT_MS_MIN}, or 0 to switch it off" if is_too_short else None


def _fence_problem(text: str) -> str | None:
    is_long = len(text) > FENCE_REASON_LENGTH_MAX
    return f"at most {FENCE_REASON_LENGTH_MAX} characters" if is_long else None


_IDENTITY = (
    ConfigKey(
        "node.id",
        _INT,
        None,
        "Id of this broker, unique in the cluster; a controller's is 10000 or above.",
        minimum=0,
        maximum=INT_MAX,
    ),
    ConfigKey(
        "broker.id",
        _INT,
        None,
        "Older name of node.id, which may be used instead.",
        minimum=0,
        maximum=INT_MAX,
    ),
    ConfigKey(
        "broker.rack",
        _STRING,
        None,
        "Zone or rack of this broker; replicas are spread over racks.",
    ),
    ConfigKey(
        "fairlead.host.name",
        _STRING,
        None,
        "Machine that this broker runs on: the first failure domain of placement.",
    ),
    ConfigKey(
        "log.dirs",
        _LIST,
        None,
        "The folders that hold the partitions, one for each disk (docs/operations.md). Relative "
        "ones begin where the broker is started; clients are told absolute ones. A "
        "controller has one folder, and keeps there the id of its cluster and the highest "
        "controller epoch that it has seen.",
    ),
    ConfigKey(
        CORDONED_LOG_DIRS,
        _LIST,
        "",
        "Folders of log.dirs that get no new replicas, or * for all of them, and so for the "
        "broker (KIP-1066). Replicas in them stay and are served. It can be set for single "
        "brokers only.",
        is_dynamic=True,
        check=every_problem,
    ),
)

_NETWORK = (
    ConfigKey(
        "listeners",
        _LIST,
        "CLIENT://127.0.0.1:9092,INTERNAL://127.0.0.1:9192",
        "Addresses to listen on, as NAME://HOST:PORT; INTERNAL is for brokers only. A controller "
        "has one, CONTROLLER, which is CONTROLLER://127.0.0.1:9191 unless set.",
    ),
    ConfigKey(
        "advertised.listeners",
        _LIST,
        None,
        "Addresses that clients and other brokers are told, by listener name. If not set: the "
        "addresses in listeners.",
    ),
    ConfigKey(
        "fairlead.http.listener",
        _STRING,
        None,
        f"Address of the HTTP server with health and metrics, {_PORT_FREE}.",
    ),
    ConfigKey(
        "fairlead.rest.listener",
        _STRING,
        None,
        "Address of the HTTP API, such as 127.0.0.1:8082, or https://127.0.0.1:8082 for TLS by "
        "the settings ssl.*, or by listener.name.rest.ssl.* where these are set. If not set: "
        "there is no HTTP API.",
    ),
    ConfigKey(
        "fairlead.rest.advertised.listener",
        _STRING,
        None,
        "Address of the HTTP API that clients and other brokers are told, as HOST:PORT. If not "
        "set: the address in fairlead.rest.listener.",
    ),
    ConfigKey(
        "fairlead.rest.authentication",
        _LIST,
        None,
        "How clients of the HTTP API authenticate: BASIC with the password of a SCRAM user, "
        "BEARER with a token as for OAUTHBEARER. If not set, a client may show a certificate, "
        "and is anonymous otherwise.",
        choices=("BASIC", "BEARER"),
    ),
    ConfigKey(
        "fairlead.rest.authentication.over.plaintext",
        _BOOLEAN,
        "false",
        "Accept passwords and tokens over http://, too: only for a port behind a proxy that "
        "ends TLS, and that nothing else reaches. Anybody who reads the traffic can use them.",
    ),
    ConfigKey(
        "fairlead.rest.allowed.hosts",
        _LIST,
        "",
        "Further names that requests to the HTTP API may have in the Host header. localhost, "
        "IP addresses and the advertised name are always allowed.",
    ),
    ConfigKey(
        "fairlead.rest.allowed.origins",
        _LIST,
        "",
        "Origins of web pages that may use the HTTP API (CORS), such as https://example.com or "
        "http://[::1]:3000.",
    ),
    int_key(
        "fairlead.rest.consumer.instance.timeout.ms",
        300_000,
        "Idle time after which the broker removes a consumer instance of the HTTP API "
        "(Confluent's consumer.instance.timeout.ms).",
        1_000,
    ),
    # Kafka's default is 102,400 for both. Letting the kernel adapt them costs less for large
    # requests; what readers get, and why, is in docs/sizing.md.
    int_key(
        "socket.send.buffer.bytes",
        -1,
        "Size of the send buffer; -1: 262144 for clients without TLS that are less than a "
        "millisecond away, and as the kernel adapts it for others.",
        -1,
    ),
    int_key(
        "socket.receive.buffer.bytes",
        -1,
        "Size of the receive buffer; -1: the kernel adapts it.",
        -1,
    ),
    int_key(
        "socket.request.max.bytes", 104_857_600, "Largest request that the broker accepts.", 1024
    ),
    int_key(
        "socket.listen.backlog.size", 1024, "Most connections that may wait to be accepted.", 1
    ),
    int_key(
        "max.connections", 10_000, "Most connections of all clients together.", 1, is_dynamic=True
    ),
    int_key(
        "max.connections.per.ip", 4_000, "Most connections from one address.", 0, is_dynamic=True
    ),
    ConfigKey(
        CONNECTIONS_PER_IP_OVERRIDES,
        _STRING,
        "",
        "Addresses with a limit of their own, such as 192.0.2.1:100,::1:200,localhost:200.",
        is_dynamic=True,
        check=overrides_problem,
    ),
    int_key(
        "max.connection.creation.rate",
        200,
        "Most new connections a second; further connections wait.",
        1,
        is_dynamic=True,
    ),
    long_key(
        "connections.max.idle.ms",
        600_000,
        "Idle time after which the broker closes a connection; -1: never.",
        -1,
    ),
    long_key(
        "queued.max.request.bytes",
        268_435_456,
        "Most bytes of requests that wait to be handled.",
        -1,
    ),
    int_key(
        "quota.window.num",
        11,
        "Number of windows in which the broker measures the use of a quota.",
        1,
        1_000,
    ),
    int_key("quota.window.size.seconds", 1, "Length of each window.", 1, 3_600),
    int_key(
        "controller.quota.window.num",
        11,
        "Number of windows over which a controller_mutation_rate may be used up at once.",
        1,
        1_000,
    ),
    int_key("controller.quota.window.size.seconds", 1, "Length of each window.", 1, 3_600),
    int_key("fetch.max.bytes", 57_671_680, "Largest fetch reply.", 1024),
    int_key(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Most incremental fetch sessions that the broker keeps.",
    ),
)

_TOPICS = (
    int_key("num.partitions", 1, "Partitions of a topic that does not set them.", 1),
    int_key(
        "default.replication.factor",
        1,
        "Replicas of each partition of a topic that does not set them.",
        1,
        32_767,
    ),
    ConfigKey(
        "auto.create.topics.enable",
        _BOOLEAN,
        "false",
        "Create a topic when a client first asks for it.",
    ),
    ConfigKey("delete.topic.enable", _BOOLEAN, "true", "Allow topics to be deleted by clients."),
    int_key("fairlead.max.topics", 50_000, "Most topics that the cluster may have.", 1),
    int_key("fairlead.max.partitions", 200_000, "Most partitions that the cluster may have.", 1),
    int_key("offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets.", 1),
    int_key("offsets.topic.replication.factor", 1, "Replicas of __consumer_offsets.", 1, 32_767),
    int_key(
        "offsets.topic.segment.bytes", 104_857_600, "Segment size of __consumer_offsets.", 1024
    ),
    int_key(
        "producer.id.expiration.ms",
        86_400_000,
        "Idle time after which the broker forgets the state of an idempotent producer.",
        1,
        is_dynamic=True,
    ),
)

_TOPIC_DEFAULTS = (
    _topic_default("cleanup.policy"),
    _topic_default("compression.gzip.level"),
    _topic_default("compression.lz4.level"),
    _topic_default("compression.type"),
    _topic_default("compression.zstd.level"),
    _topic_default("delete.retention.ms"),
    _topic_default("file.delete.delay.ms"),
    _topic_default("flush.messages"),
    replace(_topic_default("flush.ms"), default=None),
    _topic_default("index.interval.bytes"),
    _topic_default("local.retention.bytes"),
    _topic_default("local.retention.ms"),
    _topic_default("max.compaction.lag.ms"),
    _topic_default("max.message.bytes"),
    _topic_default("message.timestamp.after.max.ms"),
    _topic_default("message.timestamp.before.max.ms"),
    _topic_default("message.timestamp.type"),
    _topic_default("min.cleanable.dirty.ratio"),
    _topic_default("min.compaction.lag.ms"),
    _topic_default("min.insync.replicas"),
    _topic_default("preallocate"),
    _topic_default("retention.bytes"),
    replace(_topic_default("retention.ms"), default=None),
    _topic_default("segment.bytes"),
    _topic_default("segment.index.bytes"),
    replace(_topic_default("segment.jitter.ms"), default=None),
    replace(_topic_default("segment.ms"), default=None),
    _topic_default("unclean.leader.election.enable"),
    int_key(
        "log.retention.minutes", None, "Minutes of retention, if log.retention.ms is not set.", -1
    ),
    int_key(
        "log.retention.hours",
        168,
        "Hours of retention, if log.retention.minutes and log.retention.ms are not set.",
        -1,
    ),
    ConfigKey(
        "log.roll.hours",
        _INT,
        "168",
        "Hours after which the broker starts a new segment, if log.roll.ms is not set.",
        minimum=1,
        maximum=INT_MAX,
    ),
    int_key("log.roll.jitter.hours", 0, "Hours of jitter, if log.roll.jitter.ms is not set."),
)

_LOGS = (
    # In Kafka this config is read at start only.
    long_key(
        "log.retention.check.interval.ms",
        300_000,
        "How often the broker looks for old segments.",
        1,
        is_dynamic=True,
    ),
    long_key(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        "Used in place of log.flush.interval.ms if that is not set.",
        1,
    ),
    long_key(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "How often the broker saves recovery points.",
    ),
    long_key(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        "How often the broker saves log start offsets.",
    ),
    long_key(
        "replica.high.watermark.checkpoint.interval.ms",
        5_000,
        "How often the broker saves high watermarks.",
    ),
    int_key(
        "num.recovery.threads.per.data.dir",
        2,
        "Number of processes that check logs after a crash.",
        1,
        1024,
    ),
)

_COMPACTION = (
    ConfigKey(
        "log.cleaner.enable", _BOOLEAN, "true", "Compact topics with cleanup.policy=compact."
    ),
    int_key("log.cleaner.threads", 1, "Processes that compact; one is supported.", 1, 1),
    long_key(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "Memory for keys while a log is compacted, 32 bytes for each key. If a log has more "
        "keys, compaction takes more rounds.",
        1 << 20,
        is_dynamic=True,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        "1.7976931348623157E308",
        "Most bytes that compaction reads and writes in a second.",
        minimum=1,
        is_dynamic=True,
    ),
    long_key(
        "log.cleaner.backoff.ms",
        15_000,
        "How often the broker looks for logs to compact.",
        1,
        is_dynamic=True,
    ),
)

_REPLICATION = (
    long_key(
        "replica.lag.time.max.ms",
        30_000,
        "How long a follower may go without catching up before the leader removes it from the "
        "in-sync replicas.",
        1,
    ),
    ConfigKey(
        "replica.selector.class",
        _STRING,
        "",
        "With RackAwareReplicaSelector, a consumer whose client.rack is the broker.rack of an "
        "in-sync follower, and not of the leader, is told to read from that follower (KIP-392).",
        choices=(
            "",
            "RackAwareReplicaSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    ),
    int_key(
        "replica.fetch.max.bytes",
        1_048_576,
        "Most bytes of one partition in an answer to a follower's fetch.",
    ),
    int_key(
        "replica.fetch.response.max.bytes",
        10_485_760,
        "Most bytes of one answer to a follower's fetch.",
    ),
    int_key(
        "replica.fetch.wait.max.ms",
        500,
        "How long a leader without new records holds a follower's fetch.",
    ),
)

BROKER_DRAIN: Final = "fairlead.broker.drain"
"""A broker with `cordoned.log.dirs=*` (KIP-1066) gets no new replicas either, but keeps its own."""
BROKER_FENCE: Final = "fairlead.broker.fence"
"""Who fenced a broker and why; the broker is fenced if this is not empty."""
FENCE_REASON_LENGTH_MAX: Final = 200
DECLARED_CONFIGS: Final = "fairlead.declared.configs"
"""Stored beside the configs that it names, so that a write changes both."""

_REASSIGNMENT = (
    ConfigKey(
        BROKER_DRAIN,
        _BOOLEAN,
        "false",
        "Give this broker no new replicas, and move those that it has to others. Set and unset by "
        "fairlead broker drain and undrain.",
        is_dynamic=True,
        is_static=False,
    ),
    ConfigKey(
        BROKER_FENCE,
        _STRING,
        "",
        "Why this broker is kept out of service, even if it is healthy; empty: it is in "
        "service. Set and unset by fairlead broker fence and unfence.",
        is_dynamic=True,
        is_static=False,
        check=_fence_problem,
    ),
    ConfigKey(
        DECLARED_CONFIGS,
        _LIST,
        "",
        "Dynamic configs of all brokers that a LogCluster declares, as LOGCLUSTER/CONFIG: "
        "change them in the LogCluster. Set by the operator.",
        is_dynamic=True,
        is_static=False,
    ),
    long_key(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Most bytes a second that this broker sends of partitions in "
        "leader.replication.throttled.replicas, to replicas that are not in sync.",
        1,
        is_dynamic=True,
    ),
    long_key(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Most bytes a second that this broker fetches of partitions in "
        "follower.replication.throttled.replicas, while it is not in sync.",
        1,
        is_dynamic=True,
    ),
    long_key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "Most bytes a second that this broker copies from one of its log directories to another.",
        1,
        is_dynamic=True,
    ),
    long_key(
        "fairlead.reassignment.throttled.rate",
        REASSIGNMENT_BYTES_PER_SECOND,
        "Most bytes a second that a broker sends to replicas that reassignments add, if "
        "leader.replication.throttled.replicas does not name them.",
        1,
        is_dynamic=True,
    ),
)

_CONTROLLER = (
    ConfigKey(
        "auto.leader.rebalance.enable",
        _BOOLEAN,
        "true",
        "Make preferred replicas leaders again from time to time. The controller reads it.",
    ),
    long_key(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller looks for leaders that are not preferred replicas.",
        1,
    ),
    int_key(
        "leader.imbalance.per.broker.percentage",
        10,
        "Percentage of a broker's preferred partitions that other brokers may lead before the "
        "controller makes it their leader again.",
        0,
        100,
    ),
    # Kafka's defaults are 2,000 and 9,000.
    int_key(
        "broker.heartbeat.interval.ms",
        HEARTBEAT_INTERVAL_MS,
        "How often a broker sends a heartbeat to the controller. The controller reads it.",
        50,
        60_000,
    ),
    int_key(
        "broker.session.timeout.ms",
        SESSION_TIMEOUT_MS,
        "Time without heartbeats after which the controller fences a broker; at least "
        f"{HEARTBEATS_PER_SESSION_MIN} heartbeat intervals are used. The controller reads it.",
        500,
        3_600_000,
    ),
)

_ZOOKEEPER = (
    ConfigKey(
        "zookeeper.connect",
        _STRING,
        None,
        "Servers of ZooKeeper, as HOST:PORT[,HOST:PORT…][/CHROOT]. Controllers keep the "
        "metadata there, and brokers find the controllers there.",
    ),
    # Kafka's default is 18,000 since 2.5; it was 6,000 before.
    int_key(
        "zookeeper.session.timeout.ms",
        6_000,
        "Time without a heartbeat after which ZooKeeper ends a session. Failover does not wait "
        "for it.",
        1_000,
    ),
    ConfigKey(
        "zookeeper.set.acl",
        _BOOLEAN,
        "false",
        "Allow only the user of fairlead.zookeeper.digest.file to write Fairlead's znodes in "
        "ZooKeeper.",
    ),
    ConfigKey(
        "fairlead.zookeeper.digest.file",
        _STRING,
        None,
        "File with USER:PASSWORD for ZooKeeper's scheme digest; other users must not be able "
        "to read it.",
    ),
)

_CLUSTER = (
    ConfigKey(
        "fairlead.controller.sessions",
        _LIST,
        "ws://127.0.0.1:9191",
        "Session addresses of every controller that may be active, ws:// or, for TLS, wss://. "
        "With zookeeper.connect brokers find the controllers there, and this setting is not "
        "needed.",
    ),
    ConfigKey(
        "fairlead.cluster.secret.file",
        _STRING,
        None,
        "File with the secret that brokers and controllers share: at least 16 bytes. Only its "
        "owner may write it, and only its owner and group may read it.",
    ),
    ConfigKey(
        "fairlead.controller.freeze.timeout.ms",
        _INT,
        "2000",
        "For fairlead up only: a controller that has not answered for this time is killed, and "
        "another one started; 0: never.",
        minimum=0,
        maximum=INT_MAX,
        check=_freeze_timeout_problem,
    ),
    ConfigKey(
        "fairlead.log.level",
        _STRING,
        "INFO",
        "Level of the log.",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
    ),
    ConfigKey(
        "fairlead.drills.enable",
        _BOOLEAN,
        "false",
        "Allow the controller to have this process killed or paused for a failover drill.",
    ),
)

BROKER_CONFIGS: Final = key_table(
    (
        *_IDENTITY,
        *_NETWORK,
        *_TOPICS,
        *COORDINATOR_CONFIGS,
        *_TOPIC_DEFAULTS,
        *_LOGS,
        *_COMPACTION,
        *_REPLICATION,
        *_REASSIGNMENT,
        *_CONTROLLER,
        *_ZOOKEEPER,
        *_CLUSTER,
        *SECURITY_CONFIGS,
    )
)

CLUSTER_WIDE_CONFIGS: Final = frozenset({"min.insync.replicas", "unclean.leader.election.enable"})
"""Dynamic configs that the controller uses: they have one value for all brokers (KIP-966)."""
PER_BROKER_CONFIGS: Final = frozenset({CORDONED_LOG_DIRS})
"""Dynamic configs that can be set for single brokers only."""
