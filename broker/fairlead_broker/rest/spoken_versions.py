"""In which versions of the protocol the HTTP API asks brokers, this one and others.

Brokers of two releases serve side by side while a cluster is upgraded, so a version may be raised
only when every release that can be there serves it (docs/upgrade.md). An HTTP client knows no ids
of topics: those are the newest versions that name them, and of Produce the newest in which a
transaction plays no part.
"""

from typing import Final

from fairlead_wire.api_keys import ApiKey

SPOKEN_VERSIONS: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.FIND_COORDINATOR: 5,
    ApiKey.DESCRIBE_GROUPS: 6,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.DESCRIBE_CLUSTER: 1,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
}
"""By API."""
