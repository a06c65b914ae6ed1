"""Whether requests are authorized, and what the rules do not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_model.configs.config_values import BrokerValues


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """What this broker was told about who may do what."""

    is_authorizing: bool
    super_users: frozenset[str]
    allows_without_rules: bool
    """`allow.everyone.if.no.acl.found`"""


def read_access_settings(values: BrokerValues, *, is_authenticating: bool) -> AccessSettings:
    """Read the settings; ConfigError if one is wrong.

    `is_authenticating` tells whether any listener asks clients who they are: then requests are
    authorized, whether an authorizer is named or not. Kafka allows everything to everybody unless
    one is named, which nobody means who asks for names.
    """
    users = str(values.value("super.users") or "")
    return AccessSettings(
        is_authorizing=is_authenticating or bool(values.value("authorizer.class.name")),
        super_users=frozenset(filter(None, (user.strip() for user in users.split(";")))),
        allows_without_rules=values.value("allow.everyone.if.no.acl.found") is True,
    )
