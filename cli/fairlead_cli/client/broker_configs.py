"""Configs of a broker as it knows them itself."""

from __future__ import annotations

from typing import Final

from fairlead_cli.client.wire_call import call_broker
from fairlead_cli.errors import CliError
from fairlead_model.configs.broker_configs import BROKER_DRAIN
from fairlead_model.configs.cordoned_directories import (
    CORDONED_LOG_DIRS,
    cordon_entries,
    cordoned_among,
)
from fairlead_model.session.calls import ResourceType
from fairlead_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

DESCRIBE_VERSION: Final = 4


def read_drained(host: str, port: int, broker_id: int) -> bool | None:
    """Tell whether a broker is being drained, as it knows itself; None if it does not say."""
    value = read_config(host, port, broker_id, BROKER_DRAIN)
    return None if value is None else value == "true"


def read_cordoned(host: str, port: int, broker_id: int) -> bool:
    """Tell whether all log directories of a broker are cordoned, as it knows itself."""
    cordoned, directories = _read_cordons(host, port, broker_id)
    return bool(cordoned) and len(cordoned) == len(directories)


def read_cordoned_directories(host: str, port: int, broker_id: int) -> list[str]:
    """Return the log directories of a broker that are cordoned, as it knows itself."""
    cordoned, _ = _read_cordons(host, port, broker_id)
    return sorted(cordoned)


def _read_cordons(host: str, port: int, broker_id: int) -> tuple[set[str], list[str]]:
    """Return the cordoned log directories of a broker, and all that it has."""
    cordoned = read_config(host, port, broker_id, CORDONED_LOG_DIRS)
    if not cordoned:
        return set(), []
    directories = cordon_entries(read_config(host, port, broker_id, "log.dirs") or "")
    return set(cordoned_among(cordon_entries(cordoned), directories)[0]), list(directories)


def read_config(host: str, port: int, broker_id: int, name: str) -> str | None:
    """Return a setting of a broker, as it knows itself; None if it does not say."""
    resource = DescribeConfigsResource(ResourceType.BROKER, str(broker_id), [name])
    try:
        reply = call_broker(
            host, port, DescribeConfigsRequest(resources=[resource]), DESCRIBE_VERSION
        )
    except CliError:
        return None
    return next((each.value for result in reply.results for each in result.configs), None)
