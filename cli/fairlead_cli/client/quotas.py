"""Client quotas of a cluster, with requests that librdkafka's Python client does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_cli.client.connection import fetch_metadata
from fairlead_cli.client.wire_call import asking_order, call_any
from fairlead_cli.errors import CliError
from fairlead_cli.wire_exchange import name_error
from fairlead_model.security.client_quota import ENTITY_TYPES
from fairlead_wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from fairlead_wire.messages.describe_client_quotas import DescribeClientQuotasRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka.admin import AdminClient

    from fairlead_model.security.client_quota import QuotaEntity
    from fairlead_wire.message import Message


def fetch_quotas(admin: AdminClient) -> dict[QuotaEntity, dict[str, float]]:
    """Return all quotas, in the broker's order; CliError."""
    reply = _call_any(admin, DescribeClientQuotasRequest())
    if reply.error_code:
        raise CliError(
            f"cannot read the quotas: {name_error(reply.error_code)}: {reply.error_message}"
        )
    return {
        _read_entity((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in reply.entries
    }


def _read_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return an entity with its parts in order; types of a newer release come last."""
    return tuple(sorted(parts, key=lambda part: (*ENTITY_TYPES, part[0]).index(part[0])))


def alter_quotas(
    admin: AdminClient, entity: QuotaEntity, values: Mapping[str, float | None]
) -> None:
    """Set quotas of an entity, or remove those whose value is None; CliError."""
    entry = RequestEntryData(
        [RequestEntityData(kind, name) for kind, name in entity],
        [OpData(key, value or 0.0, value is None) for key, value in values.items()],
    )
    (outcome,) = _call_any(admin, AlterClientQuotasRequest([entry])).entries
    if outcome.error_code:
        raise CliError(
            f"cannot change the quotas: {name_error(outcome.error_code)}: {outcome.error_message}"
        )


def _call_any(admin: AdminClient, request: Message) -> Any:
    return call_any(asking_order(fetch_metadata(admin)), request, 1)
