"""Client settings in the formats of their files: Java's, JAAS, librdkafka's, curl's. Pure.

Values may contain any character that a password or a certificate may contain.
"""

from collections.abc import Mapping
from typing import Final

_LATIN_MAX: Final = 0x7E
_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
SCRAM_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def scram_jaas_config(user: str, password: str) -> str:
    """Return Java's `sasl.jaas.config` of a user with a password."""
    return f"{SCRAM_LOGIN_MODULE} required username={_quoted(user)} password={_quoted(password)};"


def render_java(settings: Mapping[str, str]) -> str:
    """Return settings as a file that Java's `Properties` reads."""
    return "".join(f"{name}={escape_property(text)}\n" for name, text in settings.items())


def render_librdkafka(settings: Mapping[str, str]) -> str:
    """Return settings as a file of NAME=VALUE lines, as kcat reads it.

    The format has no escapes: a value is one line, without blanks around it.
    """
    return "".join(f"{name}={text}\n" for name, text in settings.items())


def parse_librdkafka(text: str) -> dict[str, str]:
    """Return the settings of a librdkafka file: NAME=VALUE lines, and comments."""
    settings = {}
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith("#"):
            settings[name.strip()] = value.strip()
    return settings


def render_curl(settings: Mapping[str, str]) -> str:
    """Return settings as a file that `curl -K` reads, with escapes by backslash."""
    return "".join(f"{name} = {_quoted(text)}\n" for name, text in settings.items())


def escape_property(text: str) -> str:
    """Return a value for Java's `Properties`: Latin-1, with escapes by backslash."""
    out = []
    for character in escape_utf8_property(text):
        if ord(character) <= _LATIN_MAX:
            out.append(character)
        else:
            units = character.encode("utf-16-be")
            out += [f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)]
    return "".join(out)


def escape_utf8_property(text: str) -> str:
    """Return a value for a file of properties in UTF-8, such as `server.properties`: one line."""
    escaped = "".join(_ESCAPES.get(character, character) for character in text)
    # A reader would drop blanks after the equals sign.
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _quoted(text: str) -> str:
    """Return a quoted value of a JAAS configuration, or of a curl file."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
