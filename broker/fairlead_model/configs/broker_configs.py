"""The broker configs that are honoured: Kafka's names, and `fairlead.*` where Kafka has none.

What is dynamic may change while brokers run, as in Kafka; the rest is read at start.
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
"""It is asked twice a second; a shorter silence means nothing."""


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
        "The folders that hold the partitions, one a disk (docs/operations.md). A controller has "
        "one, and keeps there which cluster it has seen, and its highest epoch.",
    ),
    ConfigKey(
        CORDONED_LOG_DIRS,
        _LIST,
        "",
        "Folders of log.dirs that get no new replicas, or * for all of them, and so for the broker "
        "(KIP-1066); what is in them stays, and is served. Of one broker only.",
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
        "Addresses told to others, per listener name; the listening ones where absent.",
    ),
    ConfigKey(
        "fairlead.http.listener",
        _STRING,
        None,
        f"Address of health and metrics, {_PORT_FREE}.",
    ),
    ConfigKey(
        "fairlead.rest.listener",
        _STRING,
        None,
        "Address of the HTTP API, such as 127.0.0.1:8082, or https://127.0.0.1:8082 for TLS by "
        "the settings ssl.*, or listener.name.rest.ssl.* where it has others; off where absent.",
    ),
    ConfigKey(
        "fairlead.rest.advertised.listener",
        _STRING,
        None,
        "Address of the HTTP API that clients and other brokers are told, as HOST:PORT; the "
        "listening one where absent.",
    ),
    ConfigKey(
        "fairlead.rest.authentication",
        _LIST,
        None,
        "How clients of the HTTP API say who they are: BASIC with the password of a SCRAM user, "
        "BEARER with a token as for OAUTHBEARER. Where absent, by a certificate if they show one, "
        "and else nobody is asked.",
        choices=("BASIC", "BEARER"),
    ),
    ConfigKey(
        "fairlead.rest.authentication.over.plaintext",
        _BOOLEAN,
        "false",
        "Take passwords and tokens by http://, too: for a port that only a proxy reaches which "
        "speaks TLS itself. Whoever listens on the way can use them.",
    ),
    ConfigKey(
        "fairlead.rest.allowed.hosts",
        _LIST,
        "",
        "Names that requests to the HTTP API may give as Host besides localhost, addresses and "
        "the advertised name.",
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
        "Idle time after which a consumer instance of the HTTP API ends (Confluent's "
        "consumer.instance.timeout.ms).",
        1_000,
    ),
    # Kafka's default is 102,400 for both. Letting the kernel adapt them costs less for large
    # requests; what readers get, and why, is in docs/sizing.md.
    int_key(
        "socket.send.buffer.bytes",
        -1,
        "Send buffer; -1: 262144 for clients in clear within a millisecond, for others the kernel "
        "adapts it.",
        -1,
    ),
    int_key("socket.receive.buffer.bytes", -1, "Receive buffer; -1: the kernel adapts it.", -1),
    int_key("socket.request.max.bytes", 104_857_600, "Largest request that is read.", 1024),
    int_key("socket.listen.backlog.size", 1024, "Connections that may wait to be accepted.", 1),
    int_key("max.connections", 10_000, "Connections of all clients together.", 1, is_dynamic=True),
    int_key("max.connections.per.ip", 4_000, "Connections from one address.", 0, is_dynamic=True),
    int_key(
        "max.connection.creation.rate",
        200,
        "New connections a second; faster ones wait.",
        1,
        is_dynamic=True,
    ),
    long_key("connections.max.idle.ms", 600_000, "Silence after which a connection is closed."),
    long_key(
        "queued.max.request.bytes", 268_435_456, "Bytes of unhandled requests kept at once.", -1
    ),
    int_key("quota.window.num", 11, "Windows in which what a quota limits is counted.", 1, 1_000),
    int_key("quota.window.size.seconds", 1, "Length of such a window.", 1, 3_600),
    int_key(
        "controller.quota.window.num",
        11,
        "Windows of a controller_mutation_rate that may be used up at once.",
        1,
        1_000,
    ),
    int_key("controller.quota.window.size.seconds", 1, "Length of such a window.", 1, 3_600),
    int_key("fetch.max.bytes", 57_671_680, "Largest fetch reply.", 1024),
    int_key("max.incremental.fetch.session.cache.slots", 1000, "Fetch sessions remembered."),
)

_TOPICS = (
    int_key("num.partitions", 1, "Partitions of a topic that does not say.", 1),
    int_key("default.replication.factor", 1, "Replicas of a topic that does not say.", 1, 32_767),
    ConfigKey(
        "auto.create.topics.enable",
        _BOOLEAN,
        "false",
        "Create a topic when a client first asks for it.",
    ),
    ConfigKey("delete.topic.enable", _BOOLEAN, "true", "Allow topics to be deleted by clients."),
    int_key("fairlead.max.topics", 50_000, "Topics that the cluster may have.", 1),
    int_key("fairlead.max.partitions", 200_000, "Partitions that the cluster may have.", 1),
    int_key("offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets.", 1),
    int_key("offsets.topic.replication.factor", 1, "Replicas of __consumer_offsets.", 1, 32_767),
    int_key(
        "offsets.topic.segment.bytes", 104_857_600, "Segment size of __consumer_offsets.", 1024
    ),
    int_key(
        "producer.id.expiration.ms",
        86_400_000,
        "Silence after which a producer is forgotten.",
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
        "log.retention.minutes", None, "Minutes of retention, if log.retention.ms is unset.", -1
    ),
    int_key("log.retention.hours", 168, "Hours of retention, if minutes and ms are unset.", -1),
    ConfigKey(
        "log.roll.hours",
        _INT,
        "168",
        "Hours after which a new segment is begun, if log.roll.ms is unset.",
        minimum=1,
        maximum=INT_MAX,
    ),
    int_key("log.roll.jitter.hours", 0, "Hours of jitter, if log.roll.jitter.ms is unset."),
)

_LOGS = (
    # In Kafka it is read at start only.
    long_key(
        "log.retention.check.interval.ms",
        300_000,
        "How often old segments are looked for.",
        1,
        is_dynamic=True,
    ),
    long_key(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        "Stands for log.flush.interval.ms where that is unset.",
        1,
    ),
    long_key(
        "log.flush.offset.checkpoint.interval.ms", 60_000, "How often recovery points are saved."
    ),
    long_key(
        "log.flush.start.offset.checkpoint.interval.ms", 60_000, "How often log starts are saved."
    ),
    long_key(
        "replica.high.watermark.checkpoint.interval.ms",
        5_000,
        "How often high watermarks are saved.",
    ),
    int_key(
        "num.recovery.threads.per.data.dir", 2, "Processes that check logs after a crash.", 1, 1024
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
        "Bytes that remember keys while a log is compacted, 32 a key; more keys take more rounds.",
        1 << 20,
        is_dynamic=True,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        "1.7976931348623157E308",
        "Bytes that compaction reads and writes in a second.",
        minimum=1,
        is_dynamic=True,
    ),
    long_key(
        "log.cleaner.backoff.ms",
        15_000,
        "How often logs to compact are looked for.",
        1,
        is_dynamic=True,
    ),
)

_REPLICATION = (
    long_key(
        "replica.lag.time.max.ms",
        30_000,
        "How long a follower may go without catching up before it leaves the in-sync replicas.",
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
    int_key("replica.fetch.max.bytes", 1_048_576, "Bytes of one partition in a follower's fetch."),
    int_key(
        "replica.fetch.response.max.bytes", 10_485_760, "Bytes of one answer to a follower's fetch."
    ),
    int_key("replica.fetch.wait.max.ms", 500, "How long an idle leader keeps a follower's fetch."),
)

BROKER_DRAIN: Final = "fairlead.broker.drain"
"""With `cordoned.log.dirs=*` (KIP-1066) a broker gets nothing new either, and keeps what it has."""
BROKER_FENCE: Final = "fairlead.broker.fence"
"""By whom and why a broker is fenced; not empty: it is."""
FENCE_REASON_LENGTH_MAX: Final = 200
DECLARED_CONFIGS: Final = "fairlead.declared.configs"
"""Beside what it names, so that both are stored together."""

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
        "Why this broker is out of service, whatever it says of itself; empty: it is in service. "
        "Set and unset by fairlead broker fence and unfence.",
        is_dynamic=True,
        is_static=False,
        check=_fence_problem,
    ),
    ConfigKey(
        DECLARED_CONFIGS,
        _LIST,
        "",
        "Dynamic configs of all brokers that a LogCluster declares, as LOGCLUSTER/CONFIG: they are "
        "changed there. Set by the operator.",
        is_dynamic=True,
        is_static=False,
    ),
    long_key(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Bytes a second that this broker sends of the partitions in "
        "leader.replication.throttled.replicas, to replicas that are not in sync.",
        1,
        is_dynamic=True,
    ),
    long_key(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Bytes a second that this broker takes in of the partitions in "
        "follower.replication.throttled.replicas, while it is not in sync.",
        1,
        is_dynamic=True,
    ),
    long_key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "Bytes a second that this broker copies from one of its log directories to another.",
        1,
        is_dynamic=True,
    ),
    long_key(
        "fairlead.reassignment.throttled.rate",
        REASSIGNMENT_BYTES_PER_SECOND,
        "Bytes a second that a broker sends to replicas that reassignments add, where "
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
        "Let preferred replicas lead again from time to time. The controller reads it.",
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
        "Of the partitions that prefer a broker, how many others may lead before they go back.",
        0,
        100,
    ),
    # Kafka's defaults are 2,000 and 9,000.
    int_key(
        "broker.heartbeat.interval.ms",
        HEARTBEAT_INTERVAL_MS,
        "How often a broker says to the controller that it lives. The controller reads it.",
        50,
        60_000,
    ),
    int_key(
        "broker.session.timeout.ms",
        SESSION_TIMEOUT_MS,
        "Silence after which the controller takes a broker out of service; at least "
        f"{HEARTBEATS_PER_SESSION_MIN} heartbeat intervals hold. The controller reads it.",
        500,
        3_600_000,
    ),
)

_ZOOKEEPER = (
    ConfigKey(
        "zookeeper.connect",
        _STRING,
        None,
        "Servers of ZooKeeper, as HOST:PORT[,HOST:PORT…][/CHROOT]: there a controller keeps the "
        "metadata, and a broker finds the controllers.",
    ),
    # Kafka's default is 18,000 since 2.5; it was 6,000 before.
    int_key(
        "zookeeper.session.timeout.ms",
        6_000,
        "Silence after which ZooKeeper ends a session. Failover does not wait for it.",
        1_000,
    ),
    ConfigKey(
        "zookeeper.set.acl",
        _BOOLEAN,
        "false",
        "Let nobody but the user of fairlead.zookeeper.digest.file write what is made in "
        "ZooKeeper.",
    ),
    ConfigKey(
        "fairlead.zookeeper.digest.file",
        _STRING,
        None,
        "File with USER:PASSWORD for ZooKeeper's scheme digest; others must not read it.",
    ),
)

_CLUSTER = (
    ConfigKey(
        "fairlead.controller.sessions",
        _LIST,
        "ws://127.0.0.1:9191",
        "Session addresses of every controller that may be active, ws:// or, for TLS, wss://. With "
        "zookeeper.connect they are found, and this one need not be set.",
    ),
    ConfigKey(
        "fairlead.cluster.secret.file",
        _STRING,
        None,
        "File with the secret that brokers and controllers share: at least 16 bytes, which only "
        "its owner may write, and only its owner and group may read.",
    ),
    ConfigKey(
        "fairlead.controller.freeze.timeout.ms",
        _INT,
        "2000",
        "For fairlead up only: a controller that has not answered for so long is killed, and "
        "another started; 0: never.",
        minimum=0,
        maximum=INT_MAX,
        check=_freeze_timeout_problem,
    ),
    ConfigKey(
        "fairlead.log.level",
        _STRING,
        "INFO",
        "How much is logged.",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
    ),
    ConfigKey(
        "fairlead.drills.enable",
        _BOOLEAN,
        "false",
        "Let the controller have this process killed or paused for a failover drill.",
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
"""Dynamic configs that the controller goes by: they have one value for all brokers (KIP-966)."""
PER_BROKER_CONFIGS: Final = frozenset({CORDONED_LOG_DIRS})
"""Dynamic configs that no two brokers share."""
