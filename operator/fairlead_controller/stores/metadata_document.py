"""The whole metadata of a cluster as a document, which restores it into an empty store. Pure.

The document holds plain values (for YAML or JSON): brokers, configs, topics with the record of
every partition, counters. It describes an earlier state, so restored metadata is made safe
(`new_beginning`).

Access rules and client quotas are part of it. SCRAM credentials are not: documents are copied and
mailed, and with a verifier one can try passwords, or impersonate the server. The document names the
users who had a credential, so that they can get a new one after a restore.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from fairlead_controller.decisions.state import CountersChanged, DeclaredUser, UserDeclared
from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.loading import load_state
from fairlead_controller.decisions.tables.new_beginning import (
    NOTHING_HIGHER,
    NoRoomError,
    forgotten_start,
    jumped_counters,
    jumped_epoch,
    jumped_features,
    jumped_partition,
)
from fairlead_controller.decisions.tables.security_lines import (
    ACL_PREFIX,
    QUOTA_PREFIX,
    acl_key,
    parse_acl_key,
    parse_quota_key,
    quota_key,
)
from fairlead_controller.decisions.tables.stored_table import (
    HighestSeen,
    StoreCorruptError,
    StoredTable,
    newer_format,
)
from fairlead_model.cluster import (
    CLUSTER_WIDE,
    AclChanged,
    BrokerChanged,
    BrokerConfigsChanged,
    Change,
    ClientQuotaChanged,
    ClusterImage,
    FeaturesChanged,
    GroupConfigsChanged,
    PartitionChanged,
    TopicChanged,
    TopicImage,
    TopicState,
    empty_image,
)
from fairlead_model.codec import CodecError, decode_quotas
from fairlead_model.configs.config_key import ConfigError, ConfigKey
from fairlead_model.configs.config_values import broker_config_key, topic_config_key
from fairlead_model.configs.group_configs import group_config_key
from fairlead_model.features import FinalizedFeatures, unsupported_levels, who_reads
from fairlead_model.ids import ControllerEpoch, parse_topic_id, topic_id_text, topic_name_problem
from fairlead_model.release import RELEASE

T = TypeVar("T")

FORMAT: Final = "fairlead-metadata-export"
FORMAT_VERSION: Final = 1


class DocumentError(ValueError):
    """A document cannot be restored; the text names the wrong part."""


@dataclass(frozen=True, slots=True)
class RestoredMetadata:
    """The metadata of a document, made safe."""

    cluster_id: str
    controller_epoch: ControllerEpoch
    counters: CountersChanged
    changes: tuple[Change, ...]
    """The changes that build the image from an empty image."""
    users: tuple[UserDeclared, ...] = ()
    """The contents of User resources."""


def build_document(tables: Mapping[str, StoredTable]) -> dict[str, Any]:
    """Return the document of a store's tables; StoreCorruptError if they contradict each other."""
    epoch = max(table.controller_epoch for table in tables.values())
    state = load_state(tables, controller_epoch=epoch).state
    image = state.image
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "release": RELEASE,
        "clusterId": image.cluster_id,
        "controllerEpoch": epoch,
        "counters": lines.read_line(lines.counters_line(state.counters)),
        "features": lines.read_line(lines.features_line(image.features)),
        "brokers": [
            lines.read_line(lines.broker_line(image.brokers[broker_id]))
            for broker_id in sorted(image.brokers)
        ],
        "brokerConfigs": {
            broker: dict(configs) for broker, configs in sorted(image.broker_configs.items())
        },
        "groupConfigs": {
            group_id: dict(configs) for group_id, configs in sorted(image.group_configs.items())
        },
        "acls": sorted(acl_key(rule).removeprefix(ACL_PREFIX) for rule in image.acls),
        "clientQuotas": {
            quota_key(entity).removeprefix(QUOTA_PREFIX): dict(quotas)
            for entity, quotas in sorted(
                image.client_quotas.items(), key=lambda item: quota_key(item[0])
            )
        },
        "declaredUsers": {
            resource: state.users[resource].principal for resource in sorted(state.users)
        },
        "declaredQuotas": {
            resource: dict(quotas)
            for resource in sorted(state.users)
            if (quotas := state.users[resource].quotas) is not None
        },
        "usersWithoutCredentials": sorted({user for _, user in image.credentials}),
        "topics": [
            _topic_document(topic)
            for topic in sorted(image.topics_by_id.values(), key=lambda topic: topic.topic_id)
        ],
    }


def _topic_document(topic: TopicImage) -> dict[str, Any]:
    return {
        "topicId": topic_id_text(topic.topic_id),
        "header": lines.read_line(lines.header_line(topic.header)),
        "partitions": [
            lines.read_line(lines.partition_line(partition)) for partition in topic.partitions
        ],
    }


def read_document(
    document: object, *, seen: HighestSeen = NOTHING_HIGHER, epoch_above: ControllerEpoch = 0
) -> RestoredMetadata:
    """Read a document; DocumentError if any part of it is wrong.

    The resulting epochs are above those of the document and those in `seen`; the controller's is
    also above `epoch_above`.
    """
    root = _part("document", document, dict)
    version, release = root.get("version"), root.get("release")
    if root.get("format") == FORMAT and (
        problem := newer_format("the export", FORMAT_VERSION, version, release)
    ):
        raise DocumentError(problem)
    if root.get("format") != FORMAT or version != FORMAT_VERSION:
        raise DocumentError(
            f"not an export of metadata: format {root.get('format')!r} version "
            f"{root.get('version')!r}, this release reads {FORMAT!r} version {FORMAT_VERSION}"
        )
    counters = _built("counters", root.get("counters"), lines.build_counters)
    changes = tuple(_changes(root, seen))
    cluster_id = str(_part("clusterId", root.get("clusterId"), str))
    try:
        image = empty_image(cluster_id).apply(changes)
    except ValueError as error:
        raise DocumentError(f"the parts contradict each other: {error}") from error
    _check(image)
    epoch = _part("controllerEpoch", root.get("controllerEpoch"), int)
    try:
        controller_epoch = jumped_epoch(max(int(epoch), epoch_above), seen)
        counters = jumped_counters(counters, seen)
    except NoRoomError as error:
        raise DocumentError(str(error)) from error
    return RestoredMetadata(
        cluster_id=cluster_id,
        controller_epoch=controller_epoch,
        counters=counters,
        changes=changes,
        users=tuple(_declarations(root)),
    )


def _changes(root: Mapping[str, Any], seen: HighestSeen) -> Iterator[Change]:
    for number, record in enumerate(_part("brokers", root.get("brokers"), list)):
        broker = _built(f"brokers[{number}]", record, lines.build_broker)
        yield BrokerChanged(forgotten_start(broker))
    configs = _part("brokerConfigs", root.get("brokerConfigs"), dict)
    for broker_name, values in configs.items():
        place, name = f"brokerConfigs.{broker_name}", str(broker_name)
        if name != CLUSTER_WIDE and not (name.isascii() and name.isdecimal()):
            raise DocumentError(f"{place}: {name[:40]!r} is no id of a broker")
        checked = _part(place, values, dict)
        yield BrokerConfigsChanged(name, _configs(place, checked, broker_config_key))
    # Exports of releases without configs of groups lack this part.
    for group_id, values in _part("groupConfigs", root.get("groupConfigs", {}), dict).items():
        place = f"groupConfigs.{group_id}"
        checked = _part(place, values, dict)
        yield GroupConfigsChanged(str(group_id), _configs(place, checked, group_config_key))
    # Exports of releases without feature levels lack this part.
    if (given := root.get("features")) is not None:
        yield _restored_features(_built("features", given, lines.build_features))
    # Exports of releases without access rules lack this part.
    for rule in _part("acls", root.get("acls", []), list):
        try:
            yield AclChanged(parse_acl_key(f"{ACL_PREFIX}{rule}"))
        except StoreCorruptError as error:
            raise DocumentError(f"acls: {error}") from error
    # Exports of releases without client quotas lack this part.
    for key, values in _part("clientQuotas", root.get("clientQuotas", {}), dict).items():
        try:
            entity = parse_quota_key(f"{QUOTA_PREFIX}{key}")
            yield ClientQuotaChanged(entity, decode_quotas(values))
        except (StoreCorruptError, CodecError) as error:
            raise DocumentError(f"clientQuotas.{key}: {error}") from error
    topics = _part("topics", root.get("topics"), list)
    # Deleted topics first, because live topics may have their names again.
    numbered = [(f"topics[{number}]", topic) for number, topic in enumerate(topics)]
    named = [topic.get("topicId") for topic in topics if isinstance(topic, dict)]
    if len(set(map(str, named))) != len(named):
        raise DocumentError("topics: a topicId stands twice")
    for place, topic in sorted(numbered, key=_deleting_first):
        yield from _topic_changes(place, _part(place, topic, dict), seen)


def _declarations(root: Mapping[str, Any]) -> Iterator[UserDeclared]:
    """Yield the contents of User resources; exports of earlier releases lack this part.

    An export holds no credentials, so it does not tell which password a credential verifies. The
    operator declares again whether quotas may be above the defaults.
    """
    quotas = _part("declaredQuotas", root.get("declaredQuotas", {}), dict)
    for resource, principal in _part("declaredUsers", root.get("declaredUsers", {}), dict).items():
        named = str(_part(f"declaredUsers.{resource}", principal, str))
        try:
            declared = decode_quotas(quotas[resource]) if resource in quotas else None
        except CodecError as error:
            raise DocumentError(f"declaredQuotas.{resource}: {error}") from error
        yield UserDeclared(str(resource), DeclaredUser(named, quotas=declared))


def _restored_features(features: FinalizedFeatures) -> FeaturesChanged:
    """Return the feature levels of an export; DocumentError if this release lacks one of them."""
    if problem := unsupported_levels(features):
        raise DocumentError(
            f"features: this release, {RELEASE}, does not support the levels: {problem}; restore "
            f"it with {who_reads(features)}"
        )
    return FeaturesChanged(jumped_features(features))


def _deleting_first(item: tuple[str, Any]) -> bool:
    header = item[1].get("header") if isinstance(item[1], dict) else None
    return not (isinstance(header, dict) and header.get("state") == TopicState.DELETING)


def _topic_changes(place: str, topic: Mapping[str, Any], seen: HighestSeen) -> Iterator[Change]:
    try:
        topic_id = parse_topic_id(str(topic.get("topicId")))
    except ValueError as error:
        raise DocumentError(f"{place}.topicId: {error}") from error
    header = _built(f"{place}.header", topic.get("header"), lines.header_builder(topic_id))
    if problem := topic_name_problem(str(_part(f"{place}.header.name", header.name, str))):
        raise DocumentError(f"{place}.header.name: {problem}")
    configs = _configs(f"{place}.header.configs", header.configs, topic_config_key)
    yield TopicChanged(replace(header, configs=configs))
    records = _part(f"{place}.partitions", topic.get("partitions"), list)
    for index, record in enumerate(records):
        where = f"{place}.partitions[{index}]"
        try:
            jumped = jumped_partition(_built(where, record, lines.build_partition), seen)
        except NoRoomError as error:
            raise DocumentError(f"{where}.leader_epoch: {error}") from error
        yield PartitionChanged(topic_id, index, jumped)


def _configs(
    place: str, values: Mapping[Any, Any], key_of: Callable[[str], ConfigKey]
) -> dict[str, str]:
    """Read configs; DocumentError for a value that its reader could not parse.

    Configs that this release does not know are kept, as in the tables.
    """
    # Unquoted numbers and booleans become the text that they look like.
    configs = {
        str(name): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }
    for name, value in configs.items():
        try:
            key = key_of(name)
        except ConfigError:
            continue
        try:
            key.parse(value)
        except ConfigError as error:
            raise DocumentError(f"{place}: {error.message}") from error
    return configs


def _check(image: ClusterImage) -> None:
    for topic in image.topics_by_id.values():
        is_live = topic.header.state is TopicState.LIVE
        if is_live and len(topic.partitions) != topic.header.partition_count:
            raise DocumentError(
                f"topic {topic.name}: {len(topic.partitions)} of "
                f"{topic.header.partition_count} partitions"
            )


def _part(place: str, value: object, kind: type[T]) -> T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DocumentError(f"{place}: a {kind.__name__} is needed, not {str(value)[:40]!r}")
    return value


def _built(place: str, value: object, build: Callable[[dict[str, Any]], T]) -> T:
    record = _part(place, value, dict)
    try:
        return build(record)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DocumentError(f"{place}: {error!r}") from error
