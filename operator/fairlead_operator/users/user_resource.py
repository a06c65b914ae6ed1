"""A User resource as the reconciler reads it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_model.resources.topic_claims import Claimant, read_claimant
from fairlead_model.resources.user_declaration import PRINCIPAL_TYPE
from fairlead_model.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    binding_problem,
    host_problem,
)
from fairlead_model.security.client_quota import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Quotas,
)
from fairlead_operator.resources import ManifestError, UserSpec
from fairlead_operator.resources.user import AclEntry, LoginType, SecretKeyRef, UserQuotas
from fairlead_operator.topics.topic_resource import (
    FINALIZER,
    MANAGED_ANNOTATION,
    ClusterKey,
    ResourceKey,
)

_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}
OPERATIONS: Final = {
    "All": Operation.ALL,
    "Read": Operation.READ,
    "Write": Operation.WRITE,
    "Create": Operation.CREATE,
    "Delete": Operation.DELETE,
    "Alter": Operation.ALTER,
    "Describe": Operation.DESCRIBE,
    "ClusterAction": Operation.CLUSTER_ACTION,
    "DescribeConfigs": Operation.DESCRIBE_CONFIGS,
    "AlterConfigs": Operation.ALTER_CONFIGS,
    "IdempotentWrite": Operation.IDEMPOTENT_WRITE,
}
QUOTA_FIELDS: Final = {
    PRODUCER_BYTE_RATE: "producerByteRate",
    CONSUMER_BYTE_RATE: "consumerByteRate",
    REQUEST_PERCENTAGE: "requestPercentage",
    CONTROLLER_MUTATION_RATE: "controllerMutationRate",
}
"""Kafka's keys, and their names in manifests."""


@dataclass(frozen=True, slots=True)
class UserResource:
    """The fields of a manifest that decide what is done about it."""

    namespace: str
    name: str
    uid: str
    generation: int
    claimant: Claimant
    """Its precedence among resources that declare the same principal."""
    cluster: str
    login: LoginType
    user: str
    """The name by which it logs in; empty if the spec cannot be read."""
    rules: frozenset[AclBinding]
    quotas: Quotas | None
    """By Kafka's keys; None if the resource does not set quotas."""
    password: SecretKeyRef | None
    problem: str
    """What is wrong with the spec."""
    is_managed: bool
    is_deleting: bool
    has_finalizer: bool

    @property
    def key(self) -> ResourceKey:
        """The resource's namespace and name."""
        return self.namespace, self.name

    @property
    def cluster_key(self) -> ClusterKey:
        """The cluster that the resource names."""
        return self.namespace, self.cluster

    @property
    def principal(self) -> str:
        """Kafka's name of the user."""
        return f"{PRINCIPAL_TYPE}{self.user}"

    @property
    def claim(self) -> tuple[str, str, str]:
        """What it declares: namespace, cluster, principal."""
        return self.namespace, self.cluster, self.principal

    @property
    def is_claiming(self) -> bool:
        """Whether it declares a user."""
        return bool(self.user) and self.is_managed


def read_user_resource(manifest: Mapping[str, Any]) -> UserResource:
    """Read a manifest as the API server returns it."""
    metadata = manifest["metadata"]
    name, user, problem = str(metadata["name"]), "", ""
    login: LoginType = "scram-sha-512"
    rules: frozenset[AclBinding] = frozenset()
    quotas: Quotas | None = None
    password = None
    try:
        spec = UserSpec.from_manifest(manifest)
    except ManifestError as error:
        problem = "; ".join(each.removeprefix(f"User {name}: ") for each in error.problems)
    else:
        login = spec.authentication.type
        user = spec.authentication.subject or name
        rules, problem = read_rules(f"{PRINCIPAL_TYPE}{user}", spec.acls)
        quotas = None if spec.quotas is None else read_quotas(spec.quotas)
        if spec.authentication.password is not None:
            password = spec.authentication.password.value_from.secret_key_ref
    annotations = metadata.get("annotations") or {}
    return UserResource(
        namespace=metadata["namespace"],
        name=name,
        uid=str(metadata.get("uid", "")),
        generation=int(metadata.get("generation", 0)),
        claimant=read_claimant(metadata, name),
        cluster=str((manifest.get("spec") or {}).get("clusterName") or ""),
        login=login,
        user=user,
        rules=rules,
        quotas=quotas,
        password=password,
        problem=problem,
        is_managed=annotations.get(MANAGED_ANNOTATION) != "false",
        is_deleting="deletionTimestamp" in metadata,
        has_finalizer=FINALIZER in (metadata.get("finalizers") or ()),
    )


def read_rules(principal: str, entries: tuple[AclEntry, ...]) -> tuple[frozenset[AclBinding], str]:
    """Return the rules of entries, and the problem of the first invalid entry."""
    rules = set()
    for number, entry in enumerate(entries):
        if problem := host_problem(entry.host):
            return frozenset(), f"spec.acls[{number}].host: {problem}"
        resource = entry.resource
        prefixed = resource.pattern_type == "prefixed"
        for operation in entry.operations:
            rule = AclBinding(
                _TYPES[resource.type],
                PatternType.PREFIXED if prefixed else PatternType.LITERAL,
                CLUSTER_NAME if resource.name is None else resource.name,
                principal,
                entry.host,
                OPERATIONS[operation],
                Permission.DENY if entry.type == "deny" else Permission.ALLOW,
            )
            if problem := binding_problem(rule):
                return frozenset(), f"spec.acls[{number}]: {problem}"
            rules.add(rule)
    return frozenset(rules), ""


def read_quotas(spec: UserQuotas) -> Quotas:
    """Return quotas by Kafka's keys."""
    named = {
        PRODUCER_BYTE_RATE: spec.producer_byte_rate,
        CONSUMER_BYTE_RATE: spec.consumer_byte_rate,
        REQUEST_PERCENTAGE: spec.request_percentage,
        CONTROLLER_MUTATION_RATE: spec.controller_mutation_rate,
    }
    return {key: float(limit) for key, limit in named.items() if limit is not None}
