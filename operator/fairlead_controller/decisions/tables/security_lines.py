"""Credentials, access rules and quotas as lines of separate tables. Pure.

| key | line |
|---|---|
| acl/TYPE/PATTERN/NAME/PRINCIPAL/HOST/OPERATION/PERMISSION | {}: there is such a rule |
| scram/USER/MECHANISM | {"iterations", "salt", "stored_key", "server_key"}: base64 |
| quota/TYPE/NAME[/TYPE/NAME] | {KEY: VALUE}; the name `*` is the default of its type |
| user/RESOURCE | {"principal", "revision"}: a User resource declares this principal; with |
|   | {"quotas": {KEY: VALUE}, "exceeds_defaults"} if it declares the user's quotas, too |

Parts of a key are percent-encoded, also the star in a name. The tables are called
`security-NUMBER`: each store keeps them where users that may read topics and brokers cannot read
them (on Kubernetes in Secrets). A line of an unknown kind stays where it is, as in all tables, and
so does a quota of an unknown KEY. A rule that cannot be read is an error, because a cluster without
one of its rules may allow too much.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote, unquote

from fairlead_controller.decisions.state import DeclaredUser, UserDeclared
from fairlead_controller.decisions.tables.lines import dump_line, parse_line
from fairlead_controller.decisions.tables.stored_table import StoreCorruptError, line_bytes
from fairlead_model.cluster import AclChanged, Change, ClientQuotaChanged, CredentialChanged
from fairlead_model.codec import decode_quotas
from fairlead_model.security.acl import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    binding_problem,
)
from fairlead_model.security.client_quota import QuotaEntity, quota_entity
from fairlead_model.security.scram import ScramCredential, ScramMechanism, credential_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECURITY_TABLE_PREFIX: Final = "security-"
ACL_PREFIX: Final = "acl/"
SCRAM_PREFIX: Final = "scram/"
QUOTA_PREFIX: Final = "quota/"
USER_PREFIX: Final = "user/"

SECURITY_TABLE_BYTES_MAX: Final = 250_000
"""A change rewrites a whole table, so these are smaller than they could be."""
SECURITY_TABLES_MAX: Final = 64

_RULE: Final = dump_line({})
_DEFAULT_NAME: Final = "*"

SecurityChange: TypeAlias = AclChanged | CredentialChanged | ClientQuotaChanged | UserDeclared


def is_security_table(name: str) -> bool:
    """Tell whether a table holds rules and credentials."""
    return name.startswith(SECURITY_TABLE_PREFIX)


def security_table_name(number: int) -> str:
    """Return the name of a numbered table of rules and credentials."""
    return f"{SECURITY_TABLE_PREFIX}{number:05d}"


def acl_key(rule: AclBinding) -> str:
    """Return the key of a rule, which says it all."""
    parts = (
        rule.resource_type.name,
        rule.pattern_type.name,
        rule.name,
        rule.principal,
        rule.host,
        rule.operation.name,
        rule.permission.name,
    )
    return ACL_PREFIX + "/".join(quote(part, safe="") for part in parts)


def parse_acl_key(key: str) -> AclBinding:
    """Read the key of a rule; StoreCorruptError if it is not valid."""
    parts = [unquote(part) for part in key.removeprefix(ACL_PREFIX).split("/")]
    try:
        kind, pattern, name, principal, host, operation, permission = parts
        rule = AclBinding(
            ResourceType[kind],
            PatternType[pattern],
            name,
            principal,
            host,
            Operation[operation],
            Permission[permission],
        )
    except (ValueError, KeyError) as error:
        raise StoreCorruptError(f"the access rule {key!r} cannot be read: {error!r}") from error
    if problem := binding_problem(rule):
        raise StoreCorruptError(f"the access rule {key!r} is none: {problem}")
    return rule


def credential_key(user: str, mechanism: ScramMechanism) -> str:
    """Return the key of a credential."""
    return f"{SCRAM_PREFIX}{quote(user, safe='')}/{mechanism.sasl_name}"


def credential_line(credential: ScramCredential) -> str:
    """Return the line of a credential."""
    return dump_line(
        {
            "iterations": credential.iterations,
            "salt": _base64(credential.salt),
            "stored_key": _base64(credential.stored_key),
            "server_key": _base64(credential.server_key),
        }
    )


def quota_key(entity: QuotaEntity) -> str:
    """Return the key of an entity's quotas."""
    return QUOTA_PREFIX + "/".join(
        f"{kind}/{_DEFAULT_NAME if name is None else quote(name, safe='')}" for kind, name in entity
    )


def parse_quota_key(key: str) -> QuotaEntity:
    """Read the key of an entity's quotas; StoreCorruptError if it is not valid."""
    parts = key.removeprefix(QUOTA_PREFIX).split("/")
    try:
        return quota_entity(
            (kind, None if name == _DEFAULT_NAME else unquote(name))
            for kind, name in zip(parts[::2], parts[1::2], strict=True)
        )
    except ValueError as error:
        raise StoreCorruptError(f"the quotas {key!r} cannot be read: {error}") from error


def declaration_line(user: DeclaredUser) -> str:
    """Return the line of what a User resource declares."""
    record: dict[str, Any] = {"principal": user.principal, "revision": user.revision}
    if user.quotas is not None:
        record |= {"quotas": dict(user.quotas), "exceeds_defaults": user.exceeds_defaults}
    return dump_line(record)


def security_line(change: SecurityChange) -> tuple[str, str | None]:
    """Return key and line of a change; None removes the line."""
    if isinstance(change, ClientQuotaChanged):
        return quota_key(change.entity), dump_line(dict(change.quotas)) if change.quotas else None
    if isinstance(change, UserDeclared):
        key = f"{USER_PREFIX}{quote(change.resource, safe='')}"
        return key, None if change.user is None else declaration_line(change.user)
    if isinstance(change, AclChanged):
        return acl_key(change.rule), None if change.is_removed else _RULE
    key = credential_key(change.user, change.mechanism)
    return key, None if change.credential is None else credential_line(change.credential)


def read_security_lines(lines: Mapping[str, str]) -> Iterator[Change]:
    """Yield the changes that a table's lines make; StoreCorruptError, without keys, if damaged."""
    for key, line in lines.items():
        if key.startswith(ACL_PREFIX):
            yield AclChanged(parse_acl_key(key))
        elif key.startswith(SCRAM_PREFIX):
            yield _read_credential(key, line)
        elif key.startswith(QUOTA_PREFIX):
            yield ClientQuotaChanged(parse_quota_key(key), parse_line(key, line, decode_quotas))


def read_declarations(lines: Mapping[str, str]) -> Iterator[UserDeclared]:
    """Yield what User resources declare by a table's lines; StoreCorruptError if damaged."""
    for key, line in lines.items():
        if key.startswith(USER_PREFIX):
            resource = unquote(key.removeprefix(USER_PREFIX))
            yield UserDeclared(resource, parse_line(key, line, _build_declaration))


def _build_declaration(record: dict[str, Any]) -> DeclaredUser:
    quotas = record.get("quotas")
    return DeclaredUser(
        str(record["principal"]),
        str(record.get("revision", "")),
        None if quotas is None else decode_quotas(quotas),
        record.get("exceeds_defaults") is True,
    )


def _read_credential(key: str, line: str) -> CredentialChanged:
    user, _, name = key.removeprefix(SCRAM_PREFIX).partition("/")
    mechanism = next((each for each in ScramMechanism if each.sasl_name == name), None)
    if mechanism is None:
        raise StoreCorruptError(f"the credential {key!r} is of no known mechanism")

    def build(record: dict[str, Any]) -> ScramCredential:
        try:
            keys = [
                base64.b64decode(record[part], validate=True)
                for part in ("salt", "stored_key", "server_key")
            ]
        except binascii.Error:
            # The reason would show the text.
            raise ValueError("not base64") from None
        credential = ScramCredential(mechanism, int(record["iterations"]), *keys)
        if problem := credential_problem(credential):
            raise ValueError(problem)
        return credential

    return CredentialChanged(unquote(user), mechanism, parse_line(key, line, build))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@dataclass(slots=True)
class SecurityLayout:
    """Which table holds which line of rules and credentials.

    Only planning and loading change it.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    """Key → number of its table."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Number of a table → bytes of its lines."""
    _line_sizes: dict[str, int] = field(default_factory=dict)
    _open: int = 0
    """No table below has room."""

    @property
    def size(self) -> int:
        """Bytes of all lines."""
        return sum(self.sizes.values())

    def growth(self, key: str, line: str | None) -> int:
        """Return how many bytes a line adds; negative where it makes room."""
        known = self._line_sizes.get(key, 0)
        return (line_bytes(key, line) if line is not None else 0) - known

    def load(self, number: int, lines: Mapping[str, str]) -> None:
        """Note the lines of a table that was read, also those that are not known here."""
        self.sizes[number] = 0
        for key, line in lines.items():
            self.numbers[key] = number
            self._line_sizes[key] = line_bytes(key, line)
            self.sizes[number] += self._line_sizes[key]

    def place(self, key: str, line: str | None) -> tuple[int | None, bool]:
        """Note a line; return the number of its table, None for one that is not there to remove.

        The second value tells whether the table is new.
        """
        number = self.numbers.get(key)
        if number is None:
            if line is None:
                return None, False
            number = self._table_for(line_bytes(key, line))
        is_new = number not in self.sizes
        growth = self.growth(key, line)
        self.sizes[number] = self.sizes.get(number, 0) + growth
        if line is None:
            del self.numbers[key], self._line_sizes[key]
            self._open = min(self._open, number)
        else:
            self.numbers[key] = number
            self._line_sizes[key] = line_bytes(key, line)
        return number, is_new

    def _table_for(self, size: int) -> int:
        while self.sizes.get(self._open, 0) + size > SECURITY_TABLE_BYTES_MAX:
            self._open += 1
        return self._open
