"""Convert the `Topic` resource to and from the model, for `fairlead up -f` and the operator.

A manifest is the dict that YAML or the API server provides. All errors in it are reported at once,
each with the path of its field.

    apiVersion: fairlead.io/v1alpha1
    kind: Topic
    metadata: {name: orders}
    spec:
      clusterName: demo             # default in a cluster: the namespace's only one
      clusterNamespace: data        # on Kubernetes, where it is another one than the Topic's
      topicName: shop.orders        # default: metadata.name
      partitions: 6                 # default: the cluster's num.partitions
      replicationFactor: 1          # default: the cluster's default.replication.factor
      config: {retention.ms: 3600000, max.message.bytes: null}   # null leaves one as it is
      reclaimPolicy: Retain         # or Delete
      deletionProtection: false
      paused: false                 # true only on Kubernetes, where the operator waits
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from fairlead_model.configs.config_values import (
    ConfigError,
    topic_config_key,
    validate_topic_config,
)
from fairlead_model.ids import is_internal_topic, topic_name_problem

API_VERSION: Final = "fairlead.io/v1alpha1"
TOPIC_KIND: Final = "Topic"
RECLAIM_POLICIES: Final = ("Retain", "Delete")
PARTITIONS_MAX: Final = 10_000
"""Most partitions that one topic may ask for."""
UNSPECIFIED: Final = -1

_SPEC_FIELDS: Final = (
    "clusterName",
    "clusterNamespace",
    "topicName",
    "partitions",
    "replicationFactor",
    "config",
    "reclaimPolicy",
    "deletionProtection",
    "paused",
)
_CLUSTER_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?")
_RESOURCE_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class ManifestError(ValueError):
    """A manifest is invalid; `problems` has a line for each error."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as its resource declares it; counts are -1 if the cluster's default applies."""

    resource: str
    topic_name: str
    partitions: int = UNSPECIFIED
    replication_factor: int = UNSPECIFIED
    configs: Mapping[str, str] = field(default_factory=dict)
    reclaim_policy: str = "Retain"
    deletion_protection: bool = False
    cluster_name: str = ""
    """Empty if the manifest names no cluster, which only `fairlead up` accepts."""
    left_alone: frozenset[str] = frozenset()
    """Configs that are null in the manifest: their present values stay."""
    may_adopt: bool = True
    """Whether the resource may adopt an existing topic that no resource declares."""


def is_topic_manifest(manifest: object) -> bool:
    """Tell whether a dict is meant as a Fairlead Topic, valid or not."""
    return (
        isinstance(manifest, Mapping)
        and manifest.get("kind") == TOPIC_KIND
        and str(manifest.get("apiVersion", "")).startswith("fairlead.io/")
    )


def parse_topic_manifest(manifest: object) -> TopicSpec:
    """Read a Topic manifest; ManifestError lists every error in it."""
    if not isinstance(manifest, Mapping):
        raise ManifestError(["a manifest is a mapping with apiVersion, kind, metadata and spec"])
    reader = _ManifestReader(manifest)
    spec = reader.read()
    if reader.problems:
        raise ManifestError(reader.problems)
    return spec


def parse_topic_manifests(manifests: list[object]) -> list[TopicSpec]:
    """Read several manifests; two with the same topic or the same name are an error, too."""
    specs: list[TopicSpec] = []
    problems: list[str] = []
    for manifest in manifests:
        try:
            specs.append(parse_topic_manifest(manifest))
        except ManifestError as error:
            problems.extend(error.problems)
    resources: dict[str, TopicSpec] = {}
    topics: dict[str, TopicSpec] = {}
    for spec in specs:
        if spec.resource in resources:
            problems.append(f"Topic {spec.resource}: metadata.name: declared twice")
        elif spec.topic_name in topics:
            other = topics[spec.topic_name].resource
            problems.append(
                f"Topic {spec.resource}: spec.topicName: {spec.topic_name!r} is also declared "
                f"by Topic {other}"
            )
        resources.setdefault(spec.resource, spec)
        topics.setdefault(spec.topic_name, spec)
    if problems:
        raise ManifestError(problems)
    return specs


def build_topic_manifest(spec: TopicSpec) -> dict[str, Any]:
    """Return the manifest of a topic; parsing it returns an equal spec."""
    body: dict[str, Any] = {}
    if spec.cluster_name:
        body["clusterName"] = spec.cluster_name
    if spec.topic_name != spec.resource:
        body["topicName"] = spec.topic_name
    if spec.partitions != UNSPECIFIED:
        body["partitions"] = spec.partitions
    if spec.replication_factor != UNSPECIFIED:
        body["replicationFactor"] = spec.replication_factor
    if spec.configs or spec.left_alone:
        body["config"] = {**spec.configs, **dict.fromkeys(sorted(spec.left_alone))}
    body["reclaimPolicy"] = spec.reclaim_policy
    body["deletionProtection"] = spec.deletion_protection
    return {
        "apiVersion": API_VERSION,
        "kind": TOPIC_KIND,
        "metadata": {"name": spec.resource},
        "spec": body,
    }


class _ManifestReader:
    """Reads one manifest and collects its errors."""

    def __init__(self, manifest: Mapping[Any, Any]) -> None:
        self.problems: list[str] = []
        self._manifest = manifest
        self._label = TOPIC_KIND

    def read(self) -> TopicSpec:
        """Read all fields; the result is valid only if there are no problems."""
        resource = self._resource()
        self._label = f"{TOPIC_KIND} {resource}" if resource else TOPIC_KIND
        self._check_kind()
        spec = self._manifest.get("spec", {})
        if not isinstance(spec, Mapping):
            self._report("spec", "expected a mapping")
            spec = {}
        self._check_unknown(spec)
        if self._flag(spec, "paused"):
            self._report("spec.paused", "only the operator on Kubernetes can wait: leave it out")
        configs = spec.get("config")
        return TopicSpec(
            resource=resource,
            topic_name=self._topic_name(spec, resource),
            partitions=self._count(spec, "partitions", PARTITIONS_MAX),
            replication_factor=self._count(spec, "replicationFactor", 32_767),
            configs=self._configs(configs),
            reclaim_policy=self._reclaim_policy(spec),
            deletion_protection=self._flag(spec, "deletionProtection"),
            cluster_name=self._cluster_name(spec),
            left_alone=_null_names(configs),
        )

    def _report(self, path: str, problem: str) -> None:
        self.problems.append(f"{self._label}: {path}: {problem}")

    def _check_kind(self) -> None:
        version, kind = self._manifest.get("apiVersion"), self._manifest.get("kind")
        if version != API_VERSION:
            self._report("apiVersion", f"expected {API_VERSION}, got {shown(version)}")
        if kind != TOPIC_KIND:
            self._report("kind", f"expected {TOPIC_KIND}, got {shown(kind)}")

    def _check_unknown(self, spec: Mapping[Any, Any]) -> None:
        for name in spec:
            if name not in _SPEC_FIELDS:
                near = get_close_matches(str(name), _SPEC_FIELDS, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self._report(f"spec.{name}", f"unknown field{hint}")

    def _resource(self) -> str:
        metadata = self._manifest.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(name, str) or not name:
            self._report("metadata.name", "a name is needed")
            return ""
        if not _is_resource_name(name):
            self._report(
                "metadata.name",
                f"{shown(name)} is not a resource name (lower case letters, digits, '-' and "
                "'.'); use spec.topicName for the topic's own name",
            )
        return name

    def _topic_name(self, spec: Mapping[Any, Any], resource: str) -> str:
        name = spec.get("topicName")
        if name is None:
            name = resource
        if not isinstance(name, str):
            self._report("spec.topicName", f"expected a text, got {shown(name)}")
            return resource
        problem = topic_name_problem(name)
        if problem is not None and (name != resource or _is_resource_name(resource)):
            self._report("spec.topicName", problem)
        if is_internal_topic(name):
            self._report("spec.topicName", f"{name!r} belongs to the cluster itself")
        return name

    def _cluster_name(self, spec: Mapping[Any, Any]) -> str:
        name = spec.get("clusterName")
        if name is None:
            return ""
        if not isinstance(name, str) or _CLUSTER_NAME.fullmatch(name) is None:
            self._report("spec.clusterName", f"{shown(name)} is not the name of a LogCluster")
            return ""
        return name

    def _count(self, spec: Mapping[Any, Any], name: str, maximum: int) -> int:
        value = spec.get(name)
        if value is None:
            return UNSPECIFIED
        if type(value) is not int or not 1 <= value <= maximum:
            expected = f"expected a whole number of 1 to {maximum}"
            self._report(f"spec.{name}", f"{expected}, got {shown(value)}")
            return UNSPECIFIED
        return value

    def _flag(self, spec: Mapping[Any, Any], name: str) -> bool:
        value = spec.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            self._report(f"spec.{name}", f"expected true or false, got {shown(value)}")
            return False
        return value

    def _reclaim_policy(self, spec: Mapping[Any, Any]) -> str:
        value = spec.get("reclaimPolicy")
        if value is None:
            return RECLAIM_POLICIES[0]
        if value not in RECLAIM_POLICIES:
            choices = " or ".join(RECLAIM_POLICIES)
            self._report("spec.reclaimPolicy", f"expected {choices}, got {shown(value)}")
        return str(value)

    def _configs(self, configs: object) -> dict[str, str]:
        if configs is None:
            return {}
        if not isinstance(configs, Mapping):
            self._report("spec.config", "expected a mapping of topic configs")
            return {}
        texts = {}
        for name, value in configs.items():
            path = f"spec.config[{name}]"
            text = config_text(value)
            try:
                if value is None:
                    topic_config_key(str(name))
                elif text is None:
                    expected = "expected a text, number or truth value"
                    self._report(path, f"{expected}, got {shown(value)}")
                else:
                    validate_topic_config(str(name), text)
                    texts[str(name)] = text
            except ConfigError as error:
                self._report(path, error.message)
        return texts


def _is_resource_name(name: str) -> bool:
    return len(name) <= 253 and _RESOURCE_NAME.fullmatch(name) is not None


def _null_names(configs: object) -> frozenset[str]:
    if not isinstance(configs, Mapping):
        return frozenset()
    return frozenset(str(name) for name, value in configs.items() if value is None)


def config_text(value: object) -> str | None:
    """Return a YAML scalar in Kafka's notation; None for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) else None


def shown(value: object) -> str:
    """Quote a value in an error message, shortened."""
    return "nothing" if value is None else repr(value)[:60]
