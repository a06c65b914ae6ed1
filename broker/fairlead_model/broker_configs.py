"""The broker configs that are honoured: Kafka's names, and `fairlead.*` where Kafka has none.

Those that give topics their defaults may change while brokers run; the rest is read at start.
"""

from dataclasses import replace
from typing import Final

from fairlead_model.config_key import INT_MAX, LONG_MAX, ConfigKey, ConfigType, key_table
from fairlead_model.topic_configs import TOPIC_CONFIGS

_BOOLEAN = ConfigType.BOOLEAN
_INT = ConfigType.INT
_LONG = ConfigType.LONG
_LIST = ConfigType.LIST
_STRING = ConfigType.STRING
_PORT_FREE: Final = "without scheme, such as 127.0.0.1:8080"
_FREEZE_TIMEOUT_MS_MIN: Final = 1_000
"""It is asked twice a second; a shorter silence means nothing."""


def _int(
    name: str, default: int | None, doc: str, minimum: int = 0, maximum: int = INT_MAX
) -> ConfigKey:
    text = None if default is None else str(default)
    return ConfigKey(name, _INT, text, doc, minimum=minimum, maximum=maximum)


def _long(
    name: str, default: int | None, doc: str, minimum: int = 0, *, is_dynamic: bool = False
) -> ConfigKey:
    text = None if default is None else str(default)
    return ConfigKey(name, _LONG, text, doc, minimum=minimum, is_dynamic=is_dynamic)


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


_IDENTITY = (
    ConfigKey(
        "node.id",
        _INT,
        None,
        "Id of this broker, unique in the cluster.",
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
    ConfigKey("log.dirs", _LIST, None, "The folder that holds the partitions; one is supported."),
)

_NETWORK = (
    ConfigKey(
        "listeners",
        _LIST,
        "CLIENT://127.0.0.1:9092,INTERNAL://127.0.0.1:9192",
        "Addresses to listen on, as NAME://HOST:PORT; INTERNAL is for brokers only.",
    ),
    ConfigKey(
        "advertised.listeners",
        _LIST,
        None,
        "Addresses told to clients, per listener name; the listening ones where absent.",
    ),
    ConfigKey(
        "fairlead.http.listener",
        _STRING,
        None,
        f"Address of health, metrics and REST, {_PORT_FREE}.",
    ),
    # Kafka's default is 102,400 for both. Letting the kernel adapt them saves a third of the CPU of
    # large requests and replies.
    _int("socket.send.buffer.bytes", -1, "Send buffer; -1: the kernel adapts it.", -1),
    _int("socket.receive.buffer.bytes", -1, "Receive buffer; -1: the kernel adapts it.", -1),
    _int("socket.request.max.bytes", 104_857_600, "Largest request that is read.", 1024),
    _int("socket.listen.backlog.size", 1024, "Connections that may wait to be accepted.", 1),
    _int("max.connections", 10_000, "Connections of all clients together.", 1),
    _int("max.connections.per.ip", 4_000, "Connections from one address.", 0),
    _int("max.connection.creation.rate", 200, "New connections a second; faster ones wait.", 1),
    _long("connections.max.idle.ms", 600_000, "Silence after which a connection is closed."),
    _long("queued.max.request.bytes", 268_435_456, "Bytes of unhandled requests kept at once.", -1),
    _int("fetch.max.bytes", 57_671_680, "Largest fetch reply.", 1024),
    _int("max.incremental.fetch.session.cache.slots", 1000, "Fetch sessions remembered."),
)

_TOPICS = (
    _int("num.partitions", 1, "Partitions of a topic that does not say.", 1),
    _int("default.replication.factor", 1, "Replicas of a topic that does not say.", 1, 32_767),
    ConfigKey(
        "auto.create.topics.enable",
        _BOOLEAN,
        "false",
        "Create a topic when a client first asks for it.",
    ),
    ConfigKey("delete.topic.enable", _BOOLEAN, "true", "Allow topics to be deleted by clients."),
    _int("offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets.", 1),
    _int("offsets.topic.replication.factor", 1, "Replicas of __consumer_offsets.", 1, 32_767),
    _int("offsets.topic.segment.bytes", 104_857_600, "Segment size of __consumer_offsets.", 1024),
    _int(
        "producer.id.expiration.ms", 86_400_000, "Silence after which a producer is forgotten.", 1
    ),
)

_GROUPS = (
    _int("group.min.session.timeout.ms", 6_000, "Shortest session that a member may ask for."),
    _int("group.max.session.timeout.ms", 1_800_000, "Longest session that a member may ask for."),
    _int(
        "group.initial.rebalance.delay.ms",
        3_000,
        "How long the first rebalance of an empty group waits for more members.",
    ),
    _int("group.max.size", INT_MAX, "Members that a group may have.", 1),
    _int("offset.metadata.max.bytes", 4_096, "Longest text with a committed offset."),
    _int("offsets.commit.timeout.ms", 5_000, "How long a commit waits for its replicas.", 1),
    _int("offsets.load.buffer.size", 5_242_880, "Bytes read at once when groups are loaded.", 1),
    _int(
        "offsets.retention.minutes",
        10_080,
        "How long offsets stay after their group became empty, or after a standalone commit.",
        1,
    ),
    _long(
        "offsets.retention.check.interval.ms", 600_000, "How often old offsets are looked for.", 1
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
    _int("log.retention.minutes", None, "Minutes of retention, if log.retention.ms is unset.", -1),
    _int("log.retention.hours", 168, "Hours of retention, if minutes and ms are unset.", -1),
    ConfigKey(
        "log.roll.hours",
        _INT,
        "168",
        "Hours after which a new segment is begun, if log.roll.ms is unset.",
        minimum=1,
        maximum=INT_MAX,
    ),
    _int("log.roll.jitter.hours", 0, "Hours of jitter, if log.roll.jitter.ms is unset."),
)

_LOGS = (
    _long("log.retention.check.interval.ms", 300_000, "How often old segments are looked for.", 1),
    _long(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        "Stands for log.flush.interval.ms where that is unset.",
        1,
    ),
    _long(
        "log.flush.offset.checkpoint.interval.ms", 60_000, "How often recovery points are saved."
    ),
    _long(
        "log.flush.start.offset.checkpoint.interval.ms", 60_000, "How often log starts are saved."
    ),
    _long(
        "replica.high.watermark.checkpoint.interval.ms",
        5_000,
        "How often high watermarks are saved.",
    ),
    _int(
        "num.recovery.threads.per.data.dir", 2, "Processes that check logs after a crash.", 1, 1024
    ),
)

_COMPACTION = (
    ConfigKey(
        "log.cleaner.enable", _BOOLEAN, "true", "Compact topics with cleanup.policy=compact."
    ),
    _int("log.cleaner.threads", 1, "Processes that compact; one is supported.", 1, 1),
    _long(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "Bytes that remember keys while a log is compacted, 32 a key; more keys take more rounds.",
        1 << 20,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        "1.7976931348623157E308",
        "Bytes that compaction reads and writes in a second.",
        minimum=1,
    ),
    _long("log.cleaner.backoff.ms", 15_000, "How often logs to compact are looked for.", 1),
)

_REPLICATION = (
    _long(
        "replica.lag.time.max.ms",
        30_000,
        "How long a follower may go without catching up before it leaves the in-sync replicas.",
        1,
    ),
    _int("replica.fetch.max.bytes", 1_048_576, "Bytes of one partition in a follower's fetch."),
    _int(
        "replica.fetch.response.max.bytes", 10_485_760, "Bytes of one answer to a follower's fetch."
    ),
    _int("replica.fetch.wait.max.ms", 500, "How long an idle leader keeps a follower's fetch."),
)

_CLUSTER = (
    ConfigKey(
        "fairlead.controller.sessions",
        _LIST,
        "ws://127.0.0.1:9191",
        "Session addresses of every controller that may be active.",
    ),
    ConfigKey(
        "fairlead.cluster.secret.file",
        _STRING,
        None,
        "File with the secret that brokers and controllers share.",
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
        *_GROUPS,
        *_TOPIC_DEFAULTS,
        *_LOGS,
        *_COMPACTION,
        *_REPLICATION,
        *_CLUSTER,
    )
)
