"""User: who may log in to a LogCluster, how, and with which rights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from fairlead_model.resources.failover_drill import CLUSTER_NAME
from fairlead_model.resources.resource_reading import ManifestForm, RootRule, read_manifest
from fairlead_model.resources.resource_shape import Bound, Rule, Text, Whole
from fairlead_model.security.acl import ACL_TEXT_MAX
from fairlead_operator.resources.condition import COUNT, Conditions, ObservedGeneration
from fairlead_operator.resources.definition import (
    AGE,
    READY,
    READY_REASON,
    Column,
    ResourceDefinition,
)

LoginType: TypeAlias = Literal["scram-sha-512", "tls", "oauth"]
AclResourceType: TypeAlias = Literal["topic", "group", "transactionalId", "cluster"]
AclOperation: TypeAlias = Literal[
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
]
ACLS_MAX: Final = 256
OPERATIONS_MAX: Final = 11
COMMON_NAME_LENGTH_MAX: Final = 64
"""X.509's bound (`ub-common-name`)."""
RATE_MAX: Final = 2**53
"""The highest whole number that every JSON reader reads exactly."""
PERCENTAGE_MAX: Final = 100_000
MUTATIONS_MAX: Final = 1_000_000
EVERYBODY: Final = ("*", "ANONYMOUS")
"""Names of users that stand for all users, or for those without authentication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKeyRef:
    """A key of a Secret."""

    name: Annotated[str, "Secret of this namespace.", Text(253, 1)]
    key: Annotated[str, "Key in it.", Text(253, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordSource:
    """Where a password is taken from."""

    secret_key_ref: Annotated[SecretKeyRef, "The key of a Secret that holds the password."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Password:
    """A password that somebody else has chosen."""

    value_from: Annotated[
        PasswordSource,
        "Where the password is. The operator applies a change there within half a minute.",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAuthentication:
    """How the user authenticates."""

    RULES: ClassVar = (
        Rule(
            cel="(self.type == 'oauth') == has(self.subject)",
            message=(
                "subject is the user's name in tokens: oauth needs it, and no other type takes it"
            ),
            field="subject",
            holds=lambda login: (login.type == "oauth") == (login.subject is not None),
        ),
        Rule(
            cel="self.type == 'scram-sha-512' || !has(self.password)",
            message="only scram-sha-512 has a password: leave it out",
            field="password",
            holds=lambda login: login.type == "scram-sha-512" or login.password is None,
        ),
        Rule(
            cel=f"!has(self.subject) || !(self.subject in {list(EVERYBODY)!r})",
            message="this name stands for everybody: name one user",
            field="subject",
            holds=lambda login: login.subject not in EVERYBODY,
        ),
    )

    type: Annotated[
        LoginType,
        "scram-sha-512: with a password. tls: with a certificate that the cluster's authority "
        "issues. oauth: with a token of another issuer.",
    ]
    subject: Annotated[
        str | None,
        "The user's name in tokens, for oauth. With any other type the user's name is "
        "metadata.name.",
        Text(maximum=256, minimum=1, pattern=r"[^\x00-\x1f\x7f]+", hint="a name is one line"),
    ] = None
    password: Annotated[
        Password | None, "The password, for scram-sha-512. Default: the operator makes one."
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AclResource:
    """What a rule is about."""

    RULES: ClassVar = (
        Rule(
            cel="(self.type == 'cluster') != has(self.name)",
            message="name the topic, group or transactional id; the cluster has no name",
            field="name",
            holds=lambda resource: (resource.type == "cluster") != (resource.name is not None),
        ),
        Rule(
            cel="self.type != 'cluster' || self.patternType == 'literal'",
            message="the cluster has no prefix: leave patternType out",
            field="patternType",
            holds=lambda resource: resource.type != "cluster" or resource.pattern_type == "literal",
        ),
    )

    type: Annotated[AclResourceType, "Kind of the resource."]
    name: Annotated[
        str | None,
        "Name of the resource, or the beginning of names; '*' is every name.",
        Text(maximum=ACL_TEXT_MAX, minimum=1),
    ] = None
    pattern_type: Annotated[
        Literal["literal", "prefixed"],
        "literal: exactly the name. prefixed: all names that begin with it.",
    ] = "literal"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntry:
    """Access rules for one resource, one for each operation."""

    resource: Annotated[AclResource, "What the rules are about."]
    operations: Annotated[
        tuple[AclOperation, ...],
        "Operations that the rules allow or deny. A rule that allows Read, Write, Delete or Alter "
        "also allows Describe.",
        Bound(OPERATIONS_MAX),
    ]
    host: Annotated[
        str, "Address that the user connects from; '*' is every address.", Text(253, 1)
    ] = "*"
    type: Annotated[
        Literal["allow", "deny"], "deny: forbid the operations, whatever other rules allow."
    ] = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuotas:
    """How much a user may use, with all clients together (Kafka's client quotas)."""

    producer_byte_rate: Annotated[
        int | None, "Bytes that the user may write a second, on each broker.", Whole(1, RATE_MAX)
    ] = None
    consumer_byte_rate: Annotated[
        int | None, "Bytes that the user may read a second, on each broker.", Whole(1, RATE_MAX)
    ] = None
    request_percentage: Annotated[
        int | None,
        "Share of the time of each broker that the user's requests may take, in percent.",
        Whole(1, PERCENTAGE_MAX),
    ] = None
    controller_mutation_rate: Annotated[
        int | None,
        "Partitions that the user may create and delete a second, in the whole cluster.",
        Whole(1, MUTATIONS_MAX),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSpec:
    """How the user authenticates, and what it may do."""

    RULES: ClassVar = (
        Rule(
            cel="!has(oldSelf.clusterName) || !has(self.clusterName) || "
            "self.clusterName == oldSelf.clusterName",
            message="a User cannot move to another cluster: make a new one there",
            field="clusterName",
        ),
    )

    cluster_name: Annotated[
        str | None,
        "LogCluster of the same namespace that the user logs in to; it cannot be changed. "
        "Default: the only LogCluster of the namespace; the operator then writes its name here.",
        CLUSTER_NAME,
    ] = None
    authentication: Annotated[UserAuthentication, "How the user authenticates."]
    acls: Annotated[
        tuple[AclEntry, ...],
        "Access rules of the user; without rules, the user may do nothing. The operator removes "
        "rules that others make for this user.",
        Bound(ACLS_MAX),
    ] = ()
    quotas: Annotated[
        UserQuotas | None,
        "All quotas of the user, also those with client ids. The user has no quota that is not "
        "named here, and the operator removes quotas that others give to this user. Default: "
        "the operator leaves the user's quotas as they are.",
    ] = None

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "UserSpec":
        """Read a User; ManifestError lists all its problems."""
        return read_manifest(manifest, ManifestForm("User", cls, _ROOT_RULES))


_ROOT_RULES: Final[tuple[RootRule[UserSpec], ...]] = (
    RootRule(
        cel="self.spec.authentication.type != 'tls' || "
        f"self.metadata.name.size() <= {COMMON_NAME_LENGTH_MAX}",
        message=f"the common name of a certificate has at most {COMMON_NAME_LENGTH_MAX} "
        "characters: create the user under a shorter name",
        field="metadata.name",
        holds=lambda name, spec: (
            spec.authentication.type != "tls" or len(name) <= COMMON_NAME_LENGTH_MAX
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserStatus:
    """State of the user in the cluster."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None
    principal: Annotated[str, "Kafka's name of the user.", Text(300)] = ""
    secret: Annotated[
        str, "Secret with everything that an application needs to connect.", Text(253)
    ] = ""
    rules: Annotated[int | None, "Access rules that are in force.", COUNT] = None


USER: Final = ResourceDefinition(
    kind="User",
    plural="users",
    short_names=("fu",),
    description="A user of a LogCluster: how it authenticates, and what it may do. A Secret of the "
    "same name has the files that the user's application mounts.",
    spec=UserSpec,
    status=UserStatus,
    root_rules=_ROOT_RULES,
    columns=(
        Column("Authentication", ".spec.authentication.type"),
        Column("Rules", ".status.rules", "integer"),
        Column("Ready", READY),
        AGE,
        Column("Reason", READY_REASON, is_wide=True),
        Column("Cluster", ".spec.clusterName", is_wide=True),
        Column("Principal", ".status.principal", is_wide=True),
        Column("Secret", ".status.secret", is_wide=True),
    ),
    example="""\
apiVersion: fairlead.io/v1alpha1
kind: User
metadata:
  name: orders-app
spec:
  clusterName: demo
  authentication:
    type: scram-sha-512
  acls:
    - resource: {type: topic, name: orders}
      operations: [Read, Write]
    - resource: {type: group, name: orders-, patternType: prefixed}
      operations: [Read]
  quotas:
    producerByteRate: 10485760
""",
)
