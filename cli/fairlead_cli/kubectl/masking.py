"""Remove secrets from manifests and texts before they leave a cluster. Pure.

Secrets are never read at all. This module masks what people write elsewhere: values whose name
sounds like a secret, credentials in URLs, private keys and bearer tokens. In doubt a value is
masked: a masked harmless value costs a question, a leaked password costs a cluster.
"""

from __future__ import annotations

import re
from typing import Any

MASK = "(masked)"
SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?|secret|token|credential|private|jaas|api.?key|access.?key"
    r"|account.?key|shared.?key|auth"
    r"|signing|encryption|cookie|keystore|truststore|\bsas\b|connection.?string",
    re.IGNORECASE,
)
# Names that sound like secrets but are not.
HARMLESS_NAME = re.compile(
    r"secretname|imagepullsecrets|automountserviceaccounttoken|serviceaccounttoken$|secretkeyref"
    r"|secretref|^secret$|^auth(ority)?$|authoriz(er|ation)",
    re.IGNORECASE,
)
# A line of a log may be one long word, so each rule must take linear time.
_TEXT_RULES = (
    (re.compile(r"-----BEGIN [^-]*-----.*?(-----END [^-]*-----|\Z)", re.DOTALL), MASK),
    (re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{6,}"), rf"\1 {MASK}"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,63}://)[^\s/@:]*:[^\s/@]+@"), rf"\1{MASK}@"),
    (re.compile(r"\beyJ[\w-]{8,4096}+\.[\w-]{8,}\.[\w-]*"), MASK),
    (re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"), MASK),
)
# A match begins only at the beginning of a name, and fails for the name as a whole.
_ASSIGNMENT = re.compile(
    r"(?<![\w.\-])(?=[\w.\-]*?(?:pass(?:word|wd|phrase)?|secret|token|credential|private|jaas"
    r"|(?:api|access|account|shared).?key|signing|encryption))"
    r"(?P<name>[\w.\-]++(?:[^\w.\-\n]key[\w.\-]*+)?)(?P<sep>[\"']?\s*[=:]\s*)"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s,;}{]+(?:[^\n]*;)?)",
    re.IGNORECASE,
)


def mask_manifest(value: Any, name: str = "") -> Any:
    """Return a copy with masked secrets."""
    if isinstance(value, dict):
        return _mask_mapping(value)
    if isinstance(value, list):
        return _mask_list(value, name)
    if is_secret_name(name) and value not in (None, "", True, False):
        return MASK
    return mask_text(value) if isinstance(value, str) else value


def _mask_list(value: list[Any], name: str) -> list[Any]:
    masked: list[Any] = []
    is_value = False
    for each in value:
        is_hidden = is_value and isinstance(each, str) and not each.startswith("--")
        masked.append(MASK if is_hidden else mask_manifest(each, name))
        # ["--password", "…"], as in arguments of programs.
        is_option = isinstance(each, str) and each.startswith("-") and "=" not in each
        is_value = is_option and is_secret_name(each.lstrip("-"))
    return masked


def _mask_mapping(value: dict[str, Any]) -> dict[str, Any]:
    # {name: DB_PASSWORD, value: …}, as in the environment of containers.
    named = value.get("name")
    is_pair = isinstance(named, str) and "value" in value and is_secret_name(named)
    masked = {}
    for key, each in value.items():
        if key == "managedFields":
            continue
        if key.endswith("last-applied-configuration") or (is_pair and key == "value"):
            masked[key] = MASK
        else:
            masked[key] = mask_manifest(each, str(key))
    return masked


def is_secret_name(name: str) -> bool:
    """Tell whether a field, variable or setting of this name may hold a secret."""
    return bool(SECRET_NAME.search(name)) and not HARMLESS_NAME.search(name)


def mask_text(text: str) -> str:
    """Mask secrets in logs, property files and other texts."""
    for pattern, replacement in _TEXT_RULES:
        text = pattern.sub(replacement, text)
    return _ASSIGNMENT.sub(_mask_assignment, text)


def _mask_assignment(match: re.Match[str]) -> str:
    if HARMLESS_NAME.search(match["name"]) or match["value"] in {MASK, '""', "''"}:
        return match[0]
    return f"{match['name']}{match['sep']}{MASK}"
