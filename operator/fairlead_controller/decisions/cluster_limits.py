"""How many topics and partitions a cluster may have, and what else it may not do. Pure.

The limit keeps a loop of CreateTopics from filling the store. Topics that are being deleted count
until they are gone, because their lines are still stored.
"""

from dataclasses import dataclass
from typing import Final

from fairlead_model.configs.controller_configs import MAX_PARTITIONS, MAX_TOPICS, ControllerConfigs
from fairlead_model.session.refusals import RefusalCode, RefusedError

_DEFAULTS: Final = ControllerConfigs()


@dataclass(frozen=True, slots=True)
class ClusterLimits:
    """The limits of one cluster, from its settings. Not durable: each reign reads them again."""

    topics: int = _DEFAULTS.topics_max
    partitions: int = _DEFAULTS.partitions_max
    why_no_credentials: str = ""
    """Why nothing that verifies a password may be stored; empty where it may."""
    withholds_unclean: bool = False
    """Whether no topic's config lets a replica lead that may lack records: the cluster sleeps or
    wakes, and all brokers that hold everything are about to come back."""

    def check_room(
        self, topics: int, partitions: int, *, new_topics: int = 0, new_partitions: int = 0
    ) -> None:
        """Raise RefusedError (POLICY_VIOLATION) if so many more would exceed a limit."""
        for what, present, new, most, setting in (
            ("topics", topics, new_topics, self.topics, MAX_TOPICS),
            ("partitions", partitions, new_partitions, self.partitions, MAX_PARTITIONS),
        ):
            if new and present + new > most:
                raise RefusedError(
                    RefusalCode.POLICY_VIOLATION,
                    f"the cluster has {present} {what}, {new} more would be above {setting}={most}",
                )
