"""All kinds of the group, in the order in which users meet them."""

from typing import Final

from fairlead_operator.resources.broker_pool import BROKER_POOL
from fairlead_operator.resources.consumer_group import CONSUMER_GROUP
from fairlead_operator.resources.definition import ResourceDefinition
from fairlead_operator.resources.failover_drill import FAILOVER_DRILL
from fairlead_operator.resources.log_cluster import LOG_CLUSTER
from fairlead_operator.resources.rebalance import REBALANCE
from fairlead_operator.resources.stream_job import STREAM_JOB
from fairlead_operator.resources.tables import CLUSTER_STATE, PARTITION_TABLE
from fairlead_operator.resources.topic import TOPIC
from fairlead_operator.resources.user import USER

DEFINITIONS: Final[tuple[ResourceDefinition, ...]] = (
    LOG_CLUSTER,
    BROKER_POOL,
    TOPIC,
    USER,
    CONSUMER_GROUP,
    STREAM_JOB,
    FAILOVER_DRILL,
    REBALANCE,
    PARTITION_TABLE,
    CLUSTER_STATE,
)
