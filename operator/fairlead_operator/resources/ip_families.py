"""IP families of Services: for all Services of a LogCluster, or for those of one listener."""

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from fairlead_model.resources.resource_shape import Rule

IpFamily: TypeAlias = Literal["IPv4", "IPv6"]
IpFamilyPolicy: TypeAlias = Literal["SingleStack", "PreferDualStack", "RequireDualStack"]
COUNT_CEL: Final = "(has({0}.ipFamilies) ? {0}.ipFamilies.size() : 0)"
"""CEL: how many families the given field lists."""
FIRST_STAYS: Final = (
    "the first of ipFamilies cannot be changed, because Kubernetes does not change it in Services: "
    "add or remove the second one, or make a new"
)


def has_same_first(old: Sequence[IpFamily], new: Sequence[IpFamily]) -> bool:
    """Tell whether Services can follow; if a list is left out, Kubernetes has chosen."""
    return not old or not new or old[0] == new[0]


def _has_each_once(named: Any) -> bool:
    return len(set(named.ip_families)) == len(named.ip_families)


def _has_policy_for_two(named: Any) -> bool:
    is_dual = named.ip_family_policy in ("PreferDualStack", "RequireDualStack")
    return len(named.ip_families) < 2 or is_dual


FAMILY_RULES: Final = (
    Rule(
        cel=f"{COUNT_CEL.format('self')} < 2 || self.ipFamilies[0] != self.ipFamilies[1]",
        message="a family is listed twice: list each one once",
        field="ipFamilies",
        holds=_has_each_once,
    ),
    Rule(
        cel=f"{COUNT_CEL.format('self')} < 2 || "
        "(has(self.ipFamilyPolicy) && self.ipFamilyPolicy != 'SingleStack')",
        message="two families need ipFamilyPolicy PreferDualStack or RequireDualStack",
        field="ipFamilies",
        holds=_has_policy_for_two,
    ),
)
"""Rules for every record with `ipFamilyPolicy` and `ipFamilies`."""
