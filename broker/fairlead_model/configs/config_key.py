"""One config name: its type, default, limits and meaning, and how its text becomes a value."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from math import isfinite
from sys import float_info
from typing import Final, TypeAlias

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...]

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_RANGES: Final[dict[str, tuple[float, float]]] = {
    "SHORT": (-(2**15), 2**15 - 1),
    "INT": (-(2**31), INT_MAX),
    "LONG": (-(2**63), LONG_MAX),
    "DOUBLE": (-float_info.max, float_info.max),
}
_TEXT_LENGTH_MAX: Final = 32 * 1024
_SHORT_TEXT_LENGTH_MAX: Final = 400
"""Of numbers and choices: brokers keep the blanks and leading zeros that a client sent."""
_SHOWN_LENGTH_MAX: Final = 200
"""How much of a client's text an error message quotes."""


class ConfigError(ValueError):
    """A config name or value is invalid; the text says why, and what is allowed."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


class ConfigType(IntEnum):
    """Types with Kafka's numbers in DescribeConfigs replies."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_SHORT_TYPES: Final = frozenset(
    {ConfigType.BOOLEAN, ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE}
)


def shown(text: str) -> str:
    """Return the part of a client's text that an error message quotes."""
    return text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}…"


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker config that is the default of a topic config, after multiplication by `factor`."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One row of the table of configs."""

    name: str
    type: ConfigType
    default: str | None
    """Text of the default; None if there is none (unset, or a synonym decides)."""
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False
    """Lists of choices only: no choice at all is a value, too."""
    synonyms: tuple[Synonym, ...] = ()
    """Topic configs only: sources of the default. The first source that is set is used."""
    is_dynamic: bool = False
    """Broker configs only: the value may change while the broker runs."""
    is_static: bool = True
    """Broker configs only: the config may be in a settings file."""
    is_sensitive: bool = False
    check: Callable[[str], str | None] | None = None
    """Further check of a value of the right type: returns what is wrong with it, or None."""

    def parse(self, text: str) -> ConfigValue:
        """Parse the text; ConfigError names the config and the allowed values."""
        is_short = self.type in _SHORT_TYPES or bool(self.choices)
        longest = _SHORT_TEXT_LENGTH_MAX if is_short else _TEXT_LENGTH_MAX
        if len(text) > longest:
            raise ConfigError(
                self.name, f"{self.name}: the value has {len(text)} characters, {longest} fit"
            )
        value = self._typed(text.strip())
        self._check_range(value)
        self._check_choices(value, text.strip())
        problem = self.check(text.strip()) if self.check is not None else None
        if problem is not None:
            raise ConfigError(self.name, f"{self.name}={shown(text)}: {problem}")
        return value

    def _typed(self, text: str) -> ConfigValue:
        try:
            match self.type:
                case ConfigType.BOOLEAN:
                    return {"true": True, "false": False}[text.lower()]
                case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                    return int(_plain(text))
                case ConfigType.DOUBLE:
                    number = float(_plain(text))
                    if not isfinite(number):
                        raise ValueError(text)
                    return number
                case ConfigType.LIST:
                    return tuple(part.strip() for part in text.split(",") if part.strip())
                case _:
                    return text
        except (ValueError, KeyError):
            what = "the value" if self.is_sensitive else repr(shown(text))
            raise ConfigError(
                self.name, f"{self.name}: {what} is not {_TYPE_WORDS[self.type]}"
            ) from None

    def _check_range(self, value: ConfigValue) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        lowest, highest = _RANGES.get(self.type.name, (-LONG_MAX, LONG_MAX))
        lowest = lowest if self.minimum is None else max(lowest, self.minimum)
        highest = highest if self.maximum is None else min(highest, self.maximum)
        if value < lowest:
            raise ConfigError(self.name, f"{self.name}: {value} is below the minimum {lowest}")
        if value > highest:
            raise ConfigError(self.name, f"{self.name}: {value} is above the maximum {highest}")

    def _check_choices(self, value: ConfigValue, text: str) -> None:
        if not self.choices:
            return
        for part in value if isinstance(value, tuple) else (str(value),):
            if part not in self.choices:
                allowed = ", ".join(self.choices)
                raise ConfigError(self.name, f"{self.name}: {shown(part)!r} is none of {allowed}")
        if value == () and (text or not self.may_be_empty):
            raise ConfigError(self.name, f"{self.name}: the value is empty")
        if isinstance(value, tuple) and text and not all(map(str.strip, text.split(","))):
            # As in Kafka (KIP-1161), which takes a name that is there twice.
            raise ConfigError(self.name, f"{self.name}: {shown(text)!r} has an empty part")


def _plain(text: str) -> str:
    """Return the text of a number; ValueError if it is a number in Python's notation only."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return text


_TYPE_WORDS: Final = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "a text",
    ConfigType.INT: "a whole number",
    ConfigType.SHORT: "a whole number",
    ConfigType.LONG: "a whole number",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a list",
    ConfigType.CLASS: "a name",
    ConfigType.PASSWORD: "a text",
}


def int_key(
    name: str,
    default: int | None,
    doc: str,
    minimum: int = 0,
    maximum: int = INT_MAX,
    *,
    is_dynamic: bool = False,
) -> ConfigKey:
    """Declare a number that fits into 32 bits."""
    text = None if default is None else str(default)
    return ConfigKey(
        name, ConfigType.INT, text, doc, minimum=minimum, maximum=maximum, is_dynamic=is_dynamic
    )


def long_key(
    name: str, default: int | None, doc: str, minimum: int = 0, *, is_dynamic: bool = False
) -> ConfigKey:
    """Declare a number that fits into 64 bits."""
    text = None if default is None else str(default)
    return ConfigKey(name, ConfigType.LONG, text, doc, minimum=minimum, is_dynamic=is_dynamic)


def key_table(keys: tuple[ConfigKey, ...]) -> dict[str, ConfigKey]:
    """Return a table of keys by name, sorted by name."""
    return {key.name: key for key in sorted(keys, key=lambda key: key.name)}
