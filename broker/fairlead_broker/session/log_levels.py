"""Levels of this process's loggers as configs of Kafka's resource type BROKER_LOGGER (KIP-412).

They last until the process ends. `root` is the logger above all others, under Kafka's name.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from fairlead_model.configs.config_key import shown
from fairlead_model.session.calls import AlterOperation, ConfigAlteration
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = "root"
_TRACE: Final = 5
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": _TRACE,
}
"""Kafka's names of levels; TRACE is whatever Python has below DEBUG."""
_LIBRARIES: Final = ("aiohttp", "asyncio", "kazoo")
_OWN: Final = (
    "fairlead_broker",
    "fairlead_model",
    "fairlead_sockets",
    "fairlead_tls",
    "fairlead_wire",
    "fairlead_zookeeper",
)


def read_levels() -> dict[str, str]:
    """Return the effective level of every logger of this process, by name."""
    levels = {name: _level_name(logging.getLogger(name)) for name in _logger_names()}
    return {ROOT: _level_name(logging.getLogger()), **levels}


def alter_levels(alterations: Sequence[ConfigAlteration], *, validate_only: bool) -> None:
    """Set levels, or take them back; KafkaError and none is changed if one cannot be."""
    known = {ROOT, *_logger_names()}
    changes = []
    for each in alterations:
        _check_operation(each["operation"])
        changes.append((_logger(each["name"], known), _new_level(each)))
    if not validate_only:
        for logger, level in changes:
            logger.setLevel(level)


def _logger_names() -> list[str]:
    """Return the sorted names of existing loggers: a request cannot create one."""
    parts = (*_OWN, *_LIBRARIES)
    return sorted(
        name
        for name, each in logging.root.manager.loggerDict.items()
        if name.split(".")[0] in parts and isinstance(each, logging.Logger)
    )


def _logger(name: str, known: set[str]) -> logging.Logger:
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {shown(name)} does not exist!")
    return logging.getLogger(None if name == ROOT else name)


def _check_operation(operation: int) -> None:
    if operation not in (AlterOperation.SET, AlterOperation.DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"operation {operation} is not allowed for the BROKER_LOGGER resource",
        )


def _new_level(alteration: ConfigAlteration) -> int:
    name, operation, value = alteration["name"], alteration["operation"], alteration["value"]
    if operation == AlterOperation.DELETE:
        if name == ROOT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Removing the log level of the {ROOT} logger is not allowed",
            )
        return logging.NOTSET
    if value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {shown(name)}")
    level = _LEVELS.get(value)
    if level is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {shown(value)} as it is not a "
            f"supported log level. Valid log levels are {', '.join(_LEVELS)}",
        )
    return level


def _level_name(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next((name for name, level in _LEVELS.items() if effective >= level), "TRACE")
