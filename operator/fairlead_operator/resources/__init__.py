"""The resources of `fairlead.io`: one declaration per kind gives schema, reader and reference.

Reconcilers read manifests with `LogClusterSpec.from_manifest(body)` and the like;
`fairlead_model.resources.topic_manifest` reads Topics, because `fairlead up` reads them, too.
"""

from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_model.resources.resource_reading import change_problems
from fairlead_model.resources.topic_manifest import ManifestError, TopicSpec, parse_topic_manifest
from fairlead_operator.resources.broker_pool import BrokerPoolSpec, BrokerPoolStatus
from fairlead_operator.resources.consumer_group import ConsumerGroupSpec, ConsumerGroupStatus
from fairlead_operator.resources.failover_drill import FailoverDrillStatus
from fairlead_operator.resources.listener import Listener
from fairlead_operator.resources.log_cluster import LogClusterSpec, LogClusterStatus
from fairlead_operator.resources.rebalance import RebalanceSpec, RebalanceStatus
from fairlead_operator.resources.topic import TopicStatus
from fairlead_operator.resources.user import UserSpec, UserStatus

__all__ = [
    "BrokerPoolSpec",
    "BrokerPoolStatus",
    "ConsumerGroupSpec",
    "ConsumerGroupStatus",
    "FailoverDrillSpec",
    "FailoverDrillStatus",
    "Listener",
    "LogClusterSpec",
    "LogClusterStatus",
    "ManifestError",
    "RebalanceSpec",
    "RebalanceStatus",
    "TopicSpec",
    "TopicStatus",
    "UserSpec",
    "UserStatus",
    "change_problems",
    "parse_topic_manifest",
]
