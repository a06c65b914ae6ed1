"""What the Users of a LogCluster may grant: the cluster's administrators decide it."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from fairlead_model.resources.resource_shape import Bound
from fairlead_operator.resources.user import OPERATIONS_MAX, AclOperation

DEFAULT_CLUSTER_OPERATIONS: Final[tuple[AclOperation, ...]] = (
    "Create",
    "Describe",
    "DescribeConfigs",
    "IdempotentWrite",
)
"""These make nobody an administrator. Alter, for example, would let a user grant itself all other
operations."""


QuotaPolicy: TypeAlias = Literal["UpToDefaults", "Any"]
DEFAULT_QUOTA_POLICY: Final[QuotaPolicy] = "UpToDefaults"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPolicy:
    """What Users may grant. Whoever may edit a namespace may create Users, but not change this."""

    cluster_operations: Annotated[
        tuple[AclOperation, ...],
        "Operations on the cluster itself that Users may allow. The operator leaves others "
        "out, and the User's conditions say so. Default: Create, Describe, DescribeConfigs and "
        "IdempotentWrite.",
        Bound(OPERATIONS_MAX),
    ] = DEFAULT_CLUSTER_OPERATIONS
    quotas: Annotated[
        QuotaPolicy,
        "UpToDefaults: the operator lowers a quota of a User that is above that of the default "
        "user or the default client id to that value, and the User's conditions say so. Any: a "
        "User may have any quota.",
    ] = DEFAULT_QUOTA_POLICY
