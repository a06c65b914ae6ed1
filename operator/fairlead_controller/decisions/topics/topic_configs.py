"""Effects of changed topic configs on the topic's partitions. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.leadership import elect_leaderless
from fairlead_controller.decisions.minimum_in_sync import (
    changed_minima,
    effective_min_insync_replicas,
)
from fairlead_model.cluster import TopicChanged, TopicImage
from fairlead_model.configs.config_values import validate_topic_configs


def set_topic_configs(draft: Draft, topic: TopicImage, configs: Mapping[str, str]) -> None:
    """Set a topic's overrides in a draft, and what follows from them for its partitions."""
    validate_topic_configs(configs)
    if configs == topic.configs:
        return
    minimum = effective_min_insync_replicas(draft.state.image, configs)
    draft.add(
        TopicChanged(replace(topic.header, configs=configs)),
        *changed_minima(topic, minimum),
    )
    draft.explain(f"topic {topic.name} has other configs")
    changed = draft.state.image.topics_by_id[topic.topic_id]
    if draft.state.allows_unclean_election(changed):
        cause = "the topic allows unclean election"
        elect_leaderless(draft, [(changed, index) for index in range(len(topic.partitions))], cause)
