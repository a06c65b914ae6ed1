"""DescribeClientQuotas (key 48), versions 0-1.

Behaviour: of each entity that matches its quotas, from the image; needs DESCRIBE_CONFIGS on the
cluster. Each component asks for one name of a type, for its default, or for any; `strict` leaves
out entities that have other types besides. An empty or repeated type answers INVALID_REQUEST, an
unknown one UNSUPPORTED_VERSION, an address beside anything else INVALID_REQUEST, as in Kafka. Where
there are more than 5,000 entities others are served meanwhile.
Versions:  1 flexible.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.in_turns import in_order, in_turns
from fairlead_model.security.client_quota import ENTITY_TYPES, IP, address_text
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_model.security.client_quota import QuotaEntity, Quotas

_MATCHES: Final = frozenset({0, 1, 2})
_EXACT: Final = 0
_ANY: Final = 2


def _refuse(
    request: DescribeClientQuotasRequest, context: RequestContext, code: ErrorCode
) -> DescribeClientQuotasResponse:
    return _refused(KafkaError(code))


@handles(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    versions=(0, 1),
    access=needs_cluster(Operation.DESCRIBE_CONFIGS, _refuse),
)
def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse | Pending:
    """Answer from the image."""
    try:
        _check(request)
    except KafkaError as error:
        return _refused(error)
    quotas = context.broker.image.client_quotas
    entries: list[EntryData] = []

    def build() -> DescribeClientQuotasResponse:
        # Others may have been served meanwhile, and taken this right away.
        if not context.would_allow_cluster(Operation.DESCRIBE_CONFIGS):
            return _refuse(request, context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return DescribeClientQuotasResponse(error_message=None, entries=entries)

    return in_turns(context, _steps(request, quotas, entries), len(quotas), build)


def _steps(
    request: DescribeClientQuotasRequest,
    quotas: Mapping[QuotaEntity, Quotas],
    entries: list[EntryData],
) -> Iterator[None]:
    """Tell of each entity that matches, in order."""
    for entity in in_order(quotas, lambda each: _is_asked_for(dict(each), request), key=_order):
        if entity is None:
            yield
            continue
        entries.append(
            EntryData(
                [EntityData(kind, name) for kind, name in entity],
                [ValueData(key, value) for key, value in sorted(quotas[entity].items())],
            )
        )


def _order(entity: QuotaEntity) -> list[tuple[str, bool, str]]:
    """Names first, then the default of their type."""
    return [(kind, name is None, name or "") for kind, name in entity]


def _is_asked_for(entity: dict[str, str | None], request: DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    for component in request.components:
        kind, wanted = component.entity_type, component.match
        if kind not in entity:
            return False
        if kind == IP and wanted is not None:
            wanted = _as_stored(wanted)
        if component.match_type != _ANY and entity[kind] != wanted:
            return False
    return True


def _as_stored(address: str) -> str:
    try:
        return address_text(address)
    except ValueError:
        return address


def _check(request: DescribeClientQuotasRequest) -> None:
    named: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if not kind or kind in named:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a type of entity is named once")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no entity is of the type {kind!r}")
        if component.match_type not in _MATCHES or (
            (component.match is None) is (component.match_type == _EXACT)
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a name goes with an exact match only")
        named.add(kind)
    if IP in named and len(named) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an address is an entity by itself")


def _refused(error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        error_code=error.code, error_message=error.message, entries=None
    )
