"""The broker configs that are honoured: Kafka's names, and `fairlead.*` where Kafka has none.

What is dynamic may change while brokers run, as in Kafka; the rest is read at start.
"""

from dataclasses import replace
from typing import Final

from fairlead_model.config_key import INT_MAX, LONG_MAX, ConfigKey, ConfigType, key_table
from fairlead_model.security_configs import SECURITY_CONFIGS
from fairlead_model.session_protocol import (
    HEARTBEAT_INTERVAL_MS,
    HEARTBEATS_PER_SESSION_MIN,
    SESSION_TIMEOUT_MS,
)
from fairlead_model.topic_configs import TOPIC_CONFIGS

_BOOLEAN = ConfigType.BOOLEAN
_INT = ConfigType.INT
_LONG = ConfigType.LONG
_LIST = ConfigType.LIST
_STRING = ConfigType.STRING
_PORT_FREE: Final = "without scheme, such as 127.0.0.1:8080"
REASSIGNMENT_BYTES_PER_SECOND: Final = 32 << 20
_FREEZE_TIMEOUT_MS_MIN: Final = 1_000
"""It is asked twice a second; a shorter silence means nothing."""


def _int(
    name: str,
    default: int | None,
    doc: str,
    minimum: int = 0,
    maximum: int = INT_MAX,
    *,
    is_dynamic: bool = False,
) -> ConfigKey:
    text = None if default is None else str(default)
    return ConfigKey(name, _INT, text, doc, minimum=minimum, maximum=maximum, is_dynamic=is_dynamic)


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


def _protocols_problem(text: str) -> str | None:
    """Without the classic protocol groups of the other one could not go back (Kafka's rule)."""
    return None if "classic" in text else "the classic protocol cannot be switched off"


def _assignors_problem(text: str) -> str | None:
    names = [name.strip() for name in text.split(",") if name.strip()]
    return None if names and len(set(names)) == len(names) else "at least one, each once"


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
        "The folder that holds the partitions; one is supported. A controller keeps there which "
        "cluster it has seen, and its highest epoch.",
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
        "Address of the HTTP API, without scheme, such as 127.0.0.1:8082; off where absent.",
    ),
    ConfigKey(
        "fairlead.rest.advertised.listener",
        _STRING,
        None,
        "Address of the HTTP API that clients and other brokers are told; the listening one where "
        "absent.",
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
        "Origins of web pages that may use the HTTP API (CORS), such as https://example.com.",
    ),
    _int(
        "fairlead.rest.consumer.instance.timeout.ms",
        300_000,
        "Idle time after which a consumer instance of the HTTP API ends (Confluent's "
        "consumer.instance.timeout.ms).",
        1_000,
    ),
    # Kafka's default is 102,400 for both. Letting the kernel adapt them saves a third of the CPU of
    # large requests and replies.
    _int("socket.send.buffer.bytes", -1, "Send buffer; -1: the kernel adapts it.", -1),
    _int("socket.receive.buffer.bytes", -1, "Receive buffer; -1: the kernel adapts it.", -1),
    _int("socket.request.max.bytes", 104_857_600, "Largest request that is read.", 1024),
    _int("socket.listen.backlog.size", 1024, "Connections that may wait to be accepted.", 1),
    _int("max.connections", 10_000, "Connections of all clients together.", 1, is_dynamic=True),
    _int("max.connections.per.ip", 4_000, "Connections from one address.", 0, is_dynamic=True),
    _int(
        "max.connection.creation.rate",
        200,
        "New connections a second; faster ones wait.",
        1,
        is_dynamic=True,
    ),
    _long("connections.max.idle.ms", 600_000, "Silence after which a connection is closed."),
    _long("queued.max.request.bytes", 268_435_456, "Bytes of unhandled requests kept at once.", -1),
    _int("quota.window.num", 11, "Windows in which what a quota limits is counted.", 1, 1_000),
    _int("quota.window.size.seconds", 1, "Length of such a window.", 1, 3_600),
    _int(
        "controller.quota.window.num",
        11,
        "Windows of a controller_mutation_rate that may be used up at once.",
        1,
        1_000,
    ),
    _int("controller.quota.window.size.seconds", 1, "Length of such a window.", 1, 3_600),
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
    _int("fairlead.max.topics", 50_000, "Topics that the cluster may have.", 1),
    _int("fairlead.max.partitions", 200_000, "Partitions that the cluster may have.", 1),
    _int("offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets.", 1),
    _int("offsets.topic.replication.factor", 1, "Replicas of __consumer_offsets.", 1, 32_767),
    _int("offsets.topic.segment.bytes", 104_857_600, "Segment size of __consumer_offsets.", 1024),
    _int(
        "producer.id.expiration.ms",
        86_400_000,
        "Silence after which a producer is forgotten.",
        1,
        is_dynamic=True,
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
    _int(
        "group.consumer.session.timeout.ms",
        45_000,
        "Silence after which a member of KIP-848's protocol is taken for dead.",
        1,
    ),
    _int(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "Shortest session that a group may be given.",
        1,
    ),
    _int(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "Longest session that a group may be given.",
        1,
    ),
    _int(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "How often members of KIP-848's protocol are told to send heartbeats.",
        1,
    ),
    _int(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        "Shortest time between heartbeats that a group may be given.",
        1,
    ),
    _int(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "Longest time between heartbeats that a group may be given.",
        1,
    ),
    _int(
        "group.consumer.assignment.interval.ms",
        1_000,
        "Shortest time between two assignments of a group of KIP-848's protocol; 0 for none.",
    ),
    _int(
        "group.consumer.min.assignment.interval.ms",
        0,
        "Shortest such time that a group may be given.",
    ),
    _int(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        "Longest such time that a group may be given.",
    ),
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

_TRANSACTIONS = (
    _int("transaction.state.log.num.partitions", 50, "Partitions of __transaction_state.", 1),
    # Kafka's default is 3, which no cluster of one broker can have.
    _int(
        "transaction.state.log.replication.factor", 1, "Replicas of __transaction_state.", 1, 32_767
    ),
    _int(
        "transaction.state.log.min.isr",
        2,
        "In-sync replicas that __transaction_state needs to be written, at most all it has.",
        1,
    ),
    _int(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "Segment size of __transaction_state.",
        1024,
    ),
    _int(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        "Bytes read at once when transactional ids are loaded.",
        1,
    ),
    _int(
        "transaction.max.timeout.ms",
        900_000,
        "Longest transaction.timeout.ms of a producer; one of 2147483647 never times out.",
        1,
    ),
    _int(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How often transactions that have timed out are looked for.",
        1,
    ),
    _int(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long a transactional id that nobody uses is remembered.",
        1,
    ),
    _int(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often transactional ids that nobody uses are looked for.",
        1,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        _BOOLEAN,
        "true",
        "Ask a transaction's coordinator before its first batch is taken. Without, a late batch of"
        " a client of transaction version 1 may open a transaction that nobody ends.",
        is_dynamic=True,
    ),
)

_CONSUMER_GROUPS = (
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        _LIST,
        "classic,consumer",
        "Protocols that groups may speak; consumer is that of KIP-848.",
        choices=("classic", "consumer"),
        check=_protocols_problem,
    ),
    ConfigKey(
        "group.consumer.assignors",
        _LIST,
        "uniform,range",
        "Assignors that members of KIP-848's protocol may ask for; the first is the default.",
        choices=("uniform", "range"),
        check=_assignors_problem,
    ),
    _int(
        "group.consumer.max.size",
        INT_MAX,
        "Members that a group of KIP-848's protocol may have.",
        1,
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        _STRING,
        "bidirectional",
        "Which groups with members may change between the classic protocol and KIP-848's.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    _int(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "How long the topics of a regular expression stand before they are looked up again.",
        10_000,
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
    # In Kafka it is read at start only.
    _long(
        "log.retention.check.interval.ms",
        300_000,
        "How often old segments are looked for.",
        1,
        is_dynamic=True,
    ),
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
    _long(
        "log.cleaner.backoff.ms",
        15_000,
        "How often logs to compact are looked for.",
        1,
        is_dynamic=True,
    ),
)

_REPLICATION = (
    _long(
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
    _int("replica.fetch.max.bytes", 1_048_576, "Bytes of one partition in a follower's fetch."),
    _int(
        "replica.fetch.response.max.bytes", 10_485_760, "Bytes of one answer to a follower's fetch."
    ),
    _int("replica.fetch.wait.max.ms", 500, "How long an idle leader keeps a follower's fetch."),
)

BROKER_DRAIN: Final = "fairlead.broker.drain"
"""Kafka's `cordoned.log.dirs` (KIP-1066) only keeps new replicas away from a broker."""

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
    _long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Bytes a second that this broker sends of the partitions in "
        "leader.replication.throttled.replicas, to replicas that are not in sync.",
        1,
        is_dynamic=True,
    ),
    _long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Bytes a second that this broker takes in of the partitions in "
        "follower.replication.throttled.replicas, while it is not in sync.",
        1,
        is_dynamic=True,
    ),
    _long(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "Accepted for Kafka's tools; a broker has one directory, so nothing moves between several.",
        1,
        is_dynamic=True,
    ),
    _long(
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
    _long(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller looks for leaders that are not preferred replicas.",
        1,
    ),
    _int(
        "leader.imbalance.per.broker.percentage",
        10,
        "Of the partitions that prefer a broker, how many others may lead before they go back.",
        0,
        100,
    ),
    # Kafka's defaults are 2,000 and 9,000.
    _int(
        "broker.heartbeat.interval.ms",
        HEARTBEAT_INTERVAL_MS,
        "How often a broker says to the controller that it lives. The controller reads it.",
        50,
        60_000,
    ),
    _int(
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
    _int(
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
        *_GROUPS,
        *_CONSUMER_GROUPS,
        *_TRANSACTIONS,
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
