"""How the name in a client's certificate becomes a user: `ssl.principal.mapping.rules`.

As in Kafka's `SslPrincipalMapper`, the first rule whose pattern matches the whole distinguished
name gives the user. If no rule matches, the client is refused. Patterns are those of RE2, whose
time is proportional to the name's length for every pattern. It has no look-ahead and no
back-references. A replacement refers to groups as in Kafka: `$1`, or `${name}`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.security.distinguished_name import DISTINGUISHED_NAME_LENGTH_MAX
from fairlead_model.configs.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_RULE: Final = re.compile(
    r"(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
)
_EVERYBODY: Final = "*"
"""Means all users in access rules, so no user may have this name, as in logins."""
_GAP: Final = re.compile(r"\s*(?:,\s*|$)")
_REFERENCE: Final = re.compile(r"\\(.)|\$([0-9]+)|\$\{([A-Za-z][A-Za-z0-9]*)\}|\$", re.DOTALL)


class NoRuleError(Exception):
    """No rule matches the name in a certificate."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: Any
    """None for DEFAULT, which uses the name unchanged."""
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        text = _replace_all(self.pattern, name, self.replacement)
        return {"L": text.lower(), "U": text.upper()}.get(self.case, text)


def _replace_all(pattern: Any, name: str, replacement: str) -> str:
    """Return what Java's `replaceAll` makes of a name, by which Kafka goes once all of it matches.

    It can replace more than once: `.*` matches the whole name, and then the nothing at its end.
    """
    pieces: list[str] = []
    end = start = 0
    while start <= len(name) and (match := pattern.search(name, start)) is not None:
        pieces += (name[end : match.start()], _expand(match, replacement))
        end = match.end()
        start = end + (match.start() == end)
    return "".join((*pieces, name[end:]))


def _expand(match: Any, replacement: str) -> str:
    """Return a replacement with the groups of a match in the places of their references."""

    def replace(reference: re.Match[str]) -> str:
        escaped, digits, group_name = reference.groups()
        if digits is not None:
            return _group(match, digits)
        return str(escaped if group_name is None else match.group(group_name) or "")

    return _REFERENCE.sub(replace, replacement)


def _group(match: Any, digits: str) -> str:
    """Return what `$` and these digits mean, as Kafka and Java's `Matcher` read it.

    As many digits as name a group; the others stay. Without such a group all of it stays.
    """
    count = len(match.groups())
    number, used = int(digits[0]), 1
    if number > count:
        return f"${digits}"
    while used < len(digits) and number * 10 + int(digits[used]) <= count:
        number = number * 10 + int(digits[used])
        used += 1
    return (match.group(number) or "") + digits[used:]


class PrincipalMapping:
    """The rules of a listener."""

    def __init__(self, rules: tuple[_Rule, ...]) -> None:
        self._rules = rules

    @classmethod
    def parse(cls, setting: str, text: str) -> PrincipalMapping:
        """Read rules; ConfigError with the setting and the part that cannot be read."""
        return cls(tuple(_parse(setting, text.strip())))

    def apply(self, distinguished_name: str) -> str:
        """Return the user for a name in a certificate; NoRuleError if no rule gives one."""
        if len(distinguished_name) > DISTINGUISHED_NAME_LENGTH_MAX:
            raise NoRuleError(f"a name of {len(distinguished_name)} characters")
        for rule in self._rules:
            user = rule.apply(distinguished_name)
            if user == _EVERYBODY:
                raise NoRuleError(f"a rule makes it {user}, a name that nobody can have")
            if user is not None:
                return user
        raise NoRuleError("no rule of ssl.principal.mapping.rules matches it")


def _parse(setting: str, text: str) -> Iterator[_Rule]:
    position = 0
    while position < len(text) or not text:
        found = _RULE.match(text, position)
        gap = None if found is None else _GAP.match(text, found.end())
        if found is None or gap is None:
            rest = text[position:]
            raise ConfigError(
                setting, f"{setting}: {rest!r} is not DEFAULT or RULE:pattern/replacement/[LU]"
            )
        if found["default"] is not None:
            yield _Rule(None, "", "")
        else:
            pattern, replacement = _compile(setting, found["pattern"]), found["replacement"]
            _check_references(setting, pattern, replacement)
            yield _Rule(pattern, replacement, found["case"])
        position = gap.end()


def _compile(setting: str, pattern: str) -> Any:
    import re2  # It takes 3 MB of memory, so it is imported only for rules with patterns.

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ConfigError(
            setting, f"{setting}: {pattern!r} is no expression of RE2: {error}"
        ) from None


def _check_references(setting: str, pattern: Any, replacement: str) -> None:
    """Refuse a replacement with which Kafka would refuse each client; ConfigError.

    Taken as it stands, it would make one user of all of them.
    """
    for reference in _REFERENCE.finditer(replacement):
        escaped, digits, group_name = reference.groups()
        problem = ""
        if digits is not None and not pattern.groups and digits[0] != "0":
            problem = "the pattern has no groups"
        elif group_name is not None and group_name not in pattern.groupindex:
            problem = f"the pattern has no group {group_name}"
        elif escaped is digits is group_name is None:
            problem = "write $NUMBER or ${NAME} for a group, and \\$ for a dollar sign"
        if problem:
            raise ConfigError(setting, f"{setting}: {reference[0]} in {replacement!r}: {problem}")
