"""Settings of authorization: whether requests are authorized, and the super users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_model.configs.config_values import BrokerValues


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """The settings of this broker for authorization."""

    is_authorizing: bool
    super_users: frozenset[str]
    allows_without_rules: bool
    """`allow.everyone.if.no.acl.found`"""


def read_access_settings(values: BrokerValues, *, is_authenticating: bool) -> AccessSettings:
    """Read the settings; ConfigError if one is wrong.

    `is_authenticating` tells whether any listener authenticates clients. If so, requests are
    authorized even if no authorizer is named. Kafka would then allow everything to every client,
    which is hardly meant where clients have to log in.
    """
    users = str(values.value("super.users") or "")
    return AccessSettings(
        is_authorizing=is_authenticating or bool(values.value("authorizer.class.name")),
        super_users=frozenset(filter(None, (user.strip() for user in users.split(";")))),
        allows_without_rules=values.value("allow.everyone.if.no.acl.found") is True,
    )
