"""The 33 topic configs of Kafka 4.3: names, defaults, limits, meaning.

What this release cannot do is refused with a reason rather than stored and ignored. Configs that
only have no effect yet (of the cleaner, local limits of tiered storage) are accepted.
"""

import re
from typing import Final

from fairlead_model.configs.config_key import (
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    Synonym,
    key_table,
)

_NEVER: Final = str(LONG_MAX)
_HOUR_MS: Final = 3_600_000
_REPLICA: Final = re.compile(r"(\d+:\d+)?")


def _not_tiered(text: str) -> str | None:
    return "tiered storage is not available" if text.lower() == "true" else None


def _replica_list(text: str) -> str | None:
    pairs = (each.strip() for each in text.split(","))
    if text in ("*", "none") or all(map(_REPLICA.fullmatch, pairs)):
        return None
    return "expected '*' or PARTITION:BROKER pairs such as 0:101,1:102"


def _gzip_level(text: str) -> str | None:
    return "the level is -1 or 1 to 9" if int(text) == 0 else None


_BOOLEAN = ConfigType.BOOLEAN
_INT = ConfigType.INT
_LONG = ConfigType.LONG
_LIST = ConfigType.LIST
_STRING = ConfigType.STRING

TOPIC_CONFIGS: Final = key_table(
    (
        ConfigKey(
            "cleanup.policy",
            _LIST,
            "delete",
            "What the broker does with old segments: delete them, or compact the log by key; an "
            "empty list: neither, records stay.",
            choices=("delete", "compact"),
            may_be_empty=True,
            synonyms=(Synonym("log.cleanup.policy"),),
        ),
        ConfigKey(
            "compression.gzip.level",
            _INT,
            "-1",
            "Compression level for gzip if the broker compresses.",
            minimum=-1,
            maximum=9,
            synonyms=(Synonym("compression.gzip.level"),),
            check=_gzip_level,
        ),
        ConfigKey(
            "compression.lz4.level",
            _INT,
            "9",
            "Compression level for lz4; it has no effect.",
            minimum=1,
            maximum=17,
            synonyms=(Synonym("compression.lz4.level"),),
        ),
        ConfigKey(
            "compression.type",
            _STRING,
            "producer",
            "Codec of stored batches; 'producer' keeps the producer's codec. With any other "
            "value the leader compresses batches again that came with another codec.",
            choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            synonyms=(Synonym("compression.type"),),
        ),
        ConfigKey(
            "compression.zstd.level",
            _INT,
            "3",
            "Compression level for zstd if the broker compresses; at most 9 is used.",
            minimum=-131_072,
            maximum=22,
            synonyms=(Synonym("compression.zstd.level"),),
        ),
        ConfigKey(
            "delete.retention.ms",
            _LONG,
            "86400000",
            "How long a compacted log keeps tombstones, and markers of transactions whose "
            "records are all gone.",
            minimum=0,
            synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
        ),
        ConfigKey(
            "file.delete.delay.ms",
            _LONG,
            "60000",
            "How long the files of a deleted segment stay, so that fetches under way can finish.",
            minimum=0,
            synonyms=(Synonym("log.segment.delete.delay.ms"),),
        ),
        ConfigKey(
            "flush.messages",
            _LONG,
            _NEVER,
            "Flush the log to disk after this number of records, before they are acknowledged.",
            minimum=1,
            synonyms=(Synonym("log.flush.interval.messages"),),
        ),
        ConfigKey(
            "flush.ms",
            _LONG,
            _NEVER,
            "Flush the log to disk at least this often.",
            minimum=0,
            synonyms=(
                Synonym("log.flush.interval.ms"),
                Synonym("log.flush.scheduler.interval.ms"),
            ),
        ),
        ConfigKey(
            "follower.replication.throttled.replicas",
            _LIST,
            "",
            "Replicas whose incoming replication is throttled.",
            check=_replica_list,
        ),
        ConfigKey(
            "index.interval.bytes",
            _INT,
            "4096",
            "Bytes of the log between two entries of the offset index.",
            minimum=0,
            synonyms=(Synonym("log.index.interval.bytes"),),
        ),
        ConfigKey(
            "leader.replication.throttled.replicas",
            _LIST,
            "",
            "Replicas whose outgoing replication is throttled.",
            check=_replica_list,
        ),
        ConfigKey(
            "local.retention.bytes",
            _LONG,
            "-2",
            "Bytes kept on the broker with tiered storage; -2: as retention.bytes.",
            minimum=-2,
            synonyms=(Synonym("log.local.retention.bytes"),),
        ),
        ConfigKey(
            "local.retention.ms",
            _LONG,
            "-2",
            "Time that records stay on the broker with tiered storage; -2: as retention.ms.",
            minimum=-2,
            synonyms=(Synonym("log.local.retention.ms"),),
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            _LONG,
            _NEVER,
            "Longest time before a record is compacted.",
            minimum=1,
            synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
        ),
        ConfigKey(
            "max.message.bytes",
            _INT,
            "1048588",
            "Largest record batch that a producer may send.",
            minimum=0,
            synonyms=(Synonym("message.max.bytes"),),
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            _LONG,
            str(_HOUR_MS),
            "How far a producer's timestamp may lie ahead of the broker's clock.",
            minimum=0,
            synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            _LONG,
            _NEVER,
            "How far a producer's timestamp may lie behind the broker's clock.",
            minimum=0,
            synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
        ),
        ConfigKey(
            "message.timestamp.type",
            _STRING,
            "CreateTime",
            "Whose clock sets the timestamps of records: the producer's or the broker's.",
            choices=("CreateTime", "LogAppendTime"),
            synonyms=(Synonym("log.message.timestamp.type"),),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            ConfigType.DOUBLE,
            "0.5",
            "Share of bytes that are not compacted yet from which on a log is compacted.",
            minimum=0,
            maximum=1,
            synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            _LONG,
            "0",
            "Shortest time before a record is compacted.",
            minimum=0,
            synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
        ),
        ConfigKey(
            "min.insync.replicas",
            _INT,
            "1",
            "Least number of in-sync replicas. With fewer, the leader refuses acks=all, and no "
            "further records become readable.",
            minimum=1,
            synonyms=(Synonym("min.insync.replicas"),),
        ),
        ConfigKey(
            "preallocate",
            _BOOLEAN,
            "false",
            "Reserve the disk space of the whole segment when it is created.",
            synonyms=(Synonym("log.preallocate"),),
        ),
        ConfigKey(
            "remote.log.copy.disable",
            _BOOLEAN,
            "false",
            "Stop copying segments to tiered storage.",
            check=_not_tiered,
        ),
        ConfigKey(
            "remote.log.delete.on.disable",
            _BOOLEAN,
            "false",
            "Delete tiered data when tiered storage is switched off.",
            check=_not_tiered,
        ),
        ConfigKey(
            "remote.storage.enable",
            _BOOLEAN,
            "false",
            "Keep old segments in tiered storage.",
            check=_not_tiered,
        ),
        ConfigKey(
            "retention.bytes",
            _LONG,
            "-1",
            "Size of a partition above which the broker deletes its oldest segments; -1: no limit.",
            synonyms=(Synonym("log.retention.bytes"),),
        ),
        ConfigKey(
            "retention.ms",
            _LONG,
            "604800000",
            "Age at which the broker deletes segments, whether they were consumed or not; -1: "
            "no limit.",
            minimum=-1,
            synonyms=(
                Synonym("log.retention.ms"),
                Synonym("log.retention.minutes", 60_000),
                Synonym("log.retention.hours", _HOUR_MS),
            ),
        ),
        ConfigKey(
            "segment.bytes",
            _INT,
            "1073741824",
            "Size at which the broker starts a new segment.",
            minimum=1024,
            synonyms=(Synonym("log.segment.bytes"),),
        ),
        ConfigKey(
            "segment.index.bytes",
            _INT,
            "10485760",
            "Size of an index at which the broker starts a new segment.",
            minimum=4,
            maximum=INT_MAX,
            synonyms=(Synonym("log.index.size.max.bytes"),),
        ),
        ConfigKey(
            "segment.jitter.ms",
            _LONG,
            "0",
            "Largest random part by which segment.ms is shortened, so that segments do not all "
            "roll at once.",
            minimum=0,
            synonyms=(
                Synonym("log.roll.jitter.ms"),
                Synonym("log.roll.jitter.hours", _HOUR_MS),
            ),
        ),
        ConfigKey(
            "segment.ms",
            _LONG,
            "604800000",
            "Age at which the broker starts a new segment.",
            minimum=1,
            synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
        ),
        ConfigKey(
            "unclean.leader.election.enable",
            _BOOLEAN,
            "false",
            "Allow a leader that may lack acknowledged records if no in-sync replica is left.",
            synonyms=(Synonym("unclean.leader.election.enable"),),
        ),
    )
)
