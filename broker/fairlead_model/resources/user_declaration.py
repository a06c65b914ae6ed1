"""What a User resource declares, in the form in which the operator sends it to the controller.

The plain form is JSON: `resource`, `principal`, `rules` (each as `codec.encode_acl` returns it),
`revision`, `credential` (with base64 values), `quotas` and `exceedsDefaults`.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairlead_model.codec import (
    USER_LENGTH_MAX,
    CodecError,
    decode_acl,
    decode_credential,
    decode_mechanism,
    decode_quotas,
    encode_acl,
    encode_credential,
    text,
)
from fairlead_model.security.client_quota import USER, quota_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_model.security.acl import AclBinding
    from fairlead_model.security.client_quota import Quotas
    from fairlead_model.security.scram import ScramCredential

PRINCIPAL_TYPE: Final = "User:"
RESOURCE_LENGTH_MAX: Final = 253
REVISION_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class UserDeclaration:
    """Everything that a principal may do, and the credential for its password if it has one."""

    resource: str
    """Name of the User resource."""
    principal: str
    """`User:name`."""
    rules: frozenset[AclBinding]
    """All rules of this principal; it has no others."""
    revision: str | None = ""
    """Identifies the password. Empty for a principal that logs in without a password. None if the
    password is not known at present: its credential stays as it is."""
    credential: ScramCredential | None = field(default=None, repr=False)
    """None to keep the credential that was sent with this revision."""
    quotas: Quotas | None = None
    """All client quotas of this user; None if they are managed elsewhere."""
    exceeds_defaults: bool = False
    """Whether the user's quotas may be above the cluster's defaults for all users."""

    @property
    def user(self) -> str:
        """The user name with which the principal logs in."""
        return self.principal.removeprefix(PRINCIPAL_TYPE)


def encode_declaration(declared: UserDeclaration) -> dict[str, Any]:
    """Return the plain form of a declaration."""
    credential = declared.credential
    plain: dict[str, Any] = {
        "resource": declared.resource,
        "principal": declared.principal,
        "rules": [encode_acl(rule) for rule in sorted(declared.rules)],
        "revision": declared.revision,
        "quotas": None if declared.quotas is None else dict(declared.quotas),
        "exceedsDefaults": declared.exceeds_defaults,
    }
    if credential is not None:
        iterations, *parts = encode_credential(credential)
        plain["credential"] = [
            int(credential.mechanism),
            iterations,
            *(base64.b64encode(part).decode() for part in parts),
        ]
    return plain


def decode_declaration(plain: Mapping[str, Any]) -> UserDeclaration:
    """Read a declaration; CodecError, without secrets in it, if it is invalid."""
    if "revision" not in plain:
        raise CodecError("a declaration says which password it is about")
    principal = text(plain.get("principal"), length_max=USER_LENGTH_MAX)
    if not principal.removeprefix(PRINCIPAL_TYPE) or not principal.startswith(PRINCIPAL_TYPE):
        raise CodecError(f"a User resource declares a principal {PRINCIPAL_TYPE}name")
    rules = plain.get("rules")
    if not isinstance(rules, list):
        raise CodecError("the rules of a User resource are a list")
    bindings = frozenset(map(decode_acl, rules))
    if any(rule.principal != principal for rule in bindings):
        raise CodecError("a User resource has rules for its own principal only")
    given, revision = plain.get("credential"), plain["revision"]
    return UserDeclaration(
        resource=text(plain.get("resource"), length_max=RESOURCE_LENGTH_MAX),
        principal=principal,
        rules=bindings,
        revision=None if revision is None else text(revision, length_max=REVISION_LENGTH_MAX),
        credential=None if given is None else _decode_credential(given),
        quotas=_decode_quotas(plain.get("quotas"), principal),
        exceeds_defaults=plain.get("exceedsDefaults") is True,
    )


def _decode_quotas(given: object, principal: str) -> Quotas | None:
    if given is None:
        return None
    quotas = decode_quotas(given)
    entity = ((USER, principal.removeprefix(PRINCIPAL_TYPE)),)
    for key, limit in quotas.items():
        if problem := quota_problem(entity, key, limit):
            raise CodecError(problem)
    return quotas


def _decode_credential(given: object) -> ScramCredential:
    if not isinstance(given, list) or len(given) < 2:
        raise CodecError("a credential is a list that begins with its mechanism")
    mechanism, iterations, *parts = given
    try:
        keys = [base64.b64decode(part, validate=True) for part in parts]
    except (binascii.Error, TypeError, ValueError):
        # The exception's own message would contain the text.
        raise CodecError("the salt and the keys of a credential are base64") from None
    return decode_credential(decode_mechanism(mechanism), [iterations, *keys])
