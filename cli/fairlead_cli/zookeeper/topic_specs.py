"""Convert an old topic to a Topic with the settings that Fairlead has. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from fairlead_cli.zookeeper.tree import Skipped
from fairlead_model.configs.config_values import ConfigError, validate_topic_config
from fairlead_model.ids import collision_key
from fairlead_model.resources.topic_manifest import PARTITIONS_MAX, TopicSpec
from fairlead_zookeeper.znodes import BROKER_TOPICS, CONFIG_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_cli.zookeeper.old_topics import OldTopic

# A name of a Kubernetes object (RFC 1123 subdomain).
RESOURCE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
SLUG_LENGTH_MAX = 60

# KIP-937 replaced one limit by two.
SUCCESSORS = {
    "message.timestamp.difference.max.ms": (
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    )
}
OTHER_BROKERS = "it names brokers of the old cluster"
# Settings without a meaning any more, which are dropped without a message.
WITHOUT_MEANING = {
    "message.format.version": "records are always of the newest format",
    "message.downconversion.enable": "old formats are never made for old consumers",
    "leader.replication.throttled.replicas": OTHER_BROKERS,
    "follower.replication.throttled.replicas": OTHER_BROKERS,
}


def build_topic_specs(topics: Iterable[OldTopic]) -> tuple[list[TopicSpec], list[Skipped]]:
    """Return the topics that can be created, and each setting or topic that cannot."""
    specs: list[TopicSpec] = []
    skipped: list[Skipped] = []
    names: dict[str, str] = {}
    for topic in topics:
        path = f"{BROKER_TOPICS}/{topic.name}"
        other = names.setdefault(collision_key(topic.name), topic.name)
        count = len(topic.replicas)
        if other != topic.name:
            reason = f"collides with {other}: '.' and '_' are the same in metric names"
            skipped.append(Skipped(path, reason))
            continue
        if count > PARTITIONS_MAX:
            skipped.append(Skipped(path, f"{count} partitions, at most {PARTITIONS_MAX} fit"))
            continue
        if len({len(replicas) for replicas in topic.replicas}) > 1:
            reason = f"partitions have different numbers of replicas: {topic.replication_factor}"
            skipped.append(Skipped(path, f"{reason} is taken for all", is_expected=True))
        configs, left_out = choose_configs(topic)
        skipped += left_out
        specs.append(
            TopicSpec(
                resource=build_resource_name(topic.name),
                topic_name=topic.name,
                partitions=count,
                replication_factor=topic.replication_factor,
                configs=configs,
            )
        )
    return specs, skipped


def choose_configs(topic: OldTopic) -> tuple[dict[str, str], list[Skipped]]:
    """Return the settings that can be used, and why each of the others is left out."""
    path = f"{CONFIG_TOPICS}/{topic.name}"
    configs: dict[str, str] = {}
    skipped = []
    for name, text in topic.configs.items():
        if name in WITHOUT_MEANING:
            reason = f"{name}={text}: {WITHOUT_MEANING[name]}"
            skipped.append(Skipped(path, reason, is_expected=True))
            continue
        for successor in SUCCESSORS.get(name, (name,)):
            try:
                validate_topic_config(successor, text)
            except ConfigError as error:
                skipped.append(Skipped(path, f"{name}={text}: {error.message}"))
            else:
                # If the znode also has the new name, its value takes precedence.
                configs[successor] = topic.configs.get(successor, text)
    return dict(sorted(configs.items())), skipped


def build_resource_name(topic: str) -> str:
    """Return the topic's own name if Kubernetes accepts it, else a readable one with a hash."""
    if RESOURCE_NAME.fullmatch(topic):
        return topic
    slug = re.sub(r"[^a-z0-9]+", "-", topic.lower()).strip("-")[:SLUG_LENGTH_MAX].strip("-")
    digest = hashlib.sha256(topic.encode()).hexdigest()[:10]
    return "-".join(part for part in (slug, digest) if part)
