"""What groups of KIP-848 know of the broker: topics, settings, and the configs of each group."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from fairlead_broker.group.consumer.consumer_members import ConsumerGroupSettings
from fairlead_broker.group.consumer.migration_policy import MigrationPolicy
from fairlead_broker.group.consumer.topic_patterns import check_pattern
from fairlead_broker.limits import GROUP_MEMBERS_MAX
from fairlead_model.configs.group_configs import consumer_group_times

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_broker.coordinator.coordinating_broker import CoordinatingBroker
    from fairlead_model.cluster import ClusterImage


class BrokerGroupHost:
    """One for all groups of a broker (`ConsumerGroupHost`)."""

    def __init__(self, broker: CoordinatingBroker) -> None:
        self._broker = broker
        self._seen = broker.image
        self._image_number = self._topics_number = 0

    @cached_property
    def _defaults(self) -> ConsumerGroupSettings:
        return self._build({})

    @property
    def image(self) -> ClusterImage:
        """The topics that there are."""
        return self._broker.image

    @property
    def image_number(self) -> int:
        """Another number with each image."""
        self._look()
        return self._image_number

    @property
    def topics_number(self) -> int:
        """Another number whenever topics are made or deleted."""
        self._look()
        return self._topics_number

    def _look(self) -> None:
        image, seen = self._broker.image, self._seen
        if image is not seen:
            self._image_number += 1
            self._topics_number += image.names is not seen.names
            self._seen = image

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """Return what holds for a group now; few have configs of their own."""
        overrides = self._broker.image.group_configs.get(group_id)
        return self._defaults if overrides is None else self._build(overrides)

    def check_regular_expression(self, pattern: str) -> None:
        """KafkaError INVALID_REGULAR_EXPRESSION for a pattern that makes no sense."""
        check_pattern(pattern)

    def _build(self, overrides: Mapping[str, str]) -> ConsumerGroupSettings:
        settings = self._broker.settings
        times = consumer_group_times(overrides, settings.values)
        return ConsumerGroupSettings(
            session_timeout_ms=times.session_timeout_ms,
            heartbeat_interval_ms=times.heartbeat_interval_ms,
            assignment_interval_ms=times.assignment_interval_ms,
            size_max=min(settings.group_consumer_max_size, GROUP_MEMBERS_MAX),
            assignors=settings.group_consumer_assignors,
            regex_refresh_interval_ms=settings.group_consumer_regex_refresh_interval_ms,
            migration_policy=MigrationPolicy(settings.group_consumer_migration_policy),
            classic_size_max=min(settings.group_max_size, GROUP_MEMBERS_MAX),
        )
