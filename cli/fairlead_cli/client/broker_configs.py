"""Configs of a broker, read from the broker itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_cli.client.survey import ask_brokers
from fairlead_cli.client.wire_call import call_broker
from fairlead_cli.errors import CliError
from fairlead_model.configs.broker_configs import BROKER_DRAIN, BROKER_FENCE
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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead_cli.client.answering import Address

DESCRIBE_VERSION: Final = 4
LOG_DIRS: Final = "log.dirs"


class BrokerOrders(NamedTuple):
    """Orders that keep a broker from its full share of the work."""

    drained: bool | None = None
    """None if the broker does not say."""
    fenced_by: str | None = None
    """Why the broker is fenced; None if it is not."""
    cordoned: frozenset[str] = frozenset()
    """Log directories that get no new replicas."""
    log_directories: frozenset[str] = frozenset()

    @property
    def is_cordoned(self) -> bool:
        """Whether no log directory takes new replicas."""
        return bool(self.cordoned) and self.cordoned == self.log_directories


def read_orders(host: str, port: int, broker_id: int) -> BrokerOrders:
    """Return the orders for a broker, read from the broker with one request."""
    names = (BROKER_DRAIN, BROKER_FENCE, CORDONED_LOG_DIRS, LOG_DIRS)
    configs = read_configs(host, port, broker_id, names)
    directories = cordon_entries(configs.get(LOG_DIRS) or "")
    cordoned = cordon_entries(configs.get(CORDONED_LOG_DIRS) or "")
    drain = configs.get(BROKER_DRAIN)
    return BrokerOrders(
        drained=None if drain is None else drain == "true",
        fenced_by=configs.get(BROKER_FENCE) or None,
        cordoned=cordoned_among(cordoned, directories)[0],
        log_directories=frozenset(directories),
    )


def read_orders_of(ids: Mapping[Address, int]) -> dict[int, BrokerOrders]:
    """Return the orders for brokers, asked in parallel; unknown for a broker that hangs."""
    answers, _ = ask_brokers(ids, lambda broker_id, at: read_orders(at.host, at.port, broker_id))
    return {broker_id: answers.get(broker_id, BrokerOrders()) for broker_id in ids.values()}


def read_config(host: str, port: int, broker_id: int, name: str) -> str | None:
    """Return a setting of a broker, read from the broker; None if it does not return it."""
    return read_configs(host, port, broker_id, (name,)).get(name)


def read_config_of(ids: Mapping[Address, int], name: str) -> dict[int, str]:
    """Return a setting of brokers, asked in parallel, without brokers that do not return it."""
    answers, _ = ask_brokers(
        ids, lambda broker_id, at: read_config(at.host, at.port, broker_id, name)
    )
    return {broker_id: value for broker_id, value in answers.items() if value is not None}


def read_configs(
    host: str, port: int, broker_id: int, names: Sequence[str]
) -> dict[str, str | None]:
    """Return settings of a broker by name, read from the broker, without those not returned."""
    resource = DescribeConfigsResource(ResourceType.BROKER, str(broker_id), list(names))
    try:
        reply = call_broker(
            host, port, DescribeConfigsRequest(resources=[resource]), DESCRIBE_VERSION
        )
    except CliError:
        return {}
    return {each.name: each.value for result in reply.results for each in result.configs}
