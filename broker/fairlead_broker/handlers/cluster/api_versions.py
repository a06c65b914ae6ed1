"""ApiVersions (key 18), versions 0 to 4.

Behaviour: answers what this listener serves, from the registry; encoded once a listener kind and
version. An unknown version is answered with UNSUPPORTED_VERSION in the layout of version 0, with
the range of ApiVersions itself, so that clients can retry with another version. Supported are the
feature levels of this release (`fairlead_model.features`), finalized those of the cluster:
`transaction.version`, by whose level 2 Java clients from 4.0 on choose the protocol with an epoch
for each transaction (KIP-890), while the versions of requests show the protocol of other clients;
`group.version` 1, the groups of KIP-848; and `fairlead.version`. There is no `metadata.version`: it
would promise records of KRaft that no broker here has.
Versions:  1 throttle time · 3 client software name and version, flexible, feature tags · 4 lets
           features begin at 0; in version 3, whose clients would take that for an error, they
           begin at 1 (KAFKA-17011).
Missing:   nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import HANDLERS, handles
from fairlead_broker.authorization import Access
from fairlead_model.features import SUPPORTED_FEATURES, FinalizedFeatures
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext


_FEATURES_SINCE: Final = 3
_LEVEL_0_SINCE: Final = 4
_SOFTWARE_SINCE: Final = 3
_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")

_bodies: dict[tuple[bool, int], tuple[FinalizedFeatures, bytes]] = {}
"""The answer by listener kind and version, with the features that it tells."""


def _refuse_version(context: RequestContext) -> bytes:
    lowest, highest = HANDLERS[ApiKey.API_VERSIONS].advertised_on(context.listener)
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(int(ApiKey.API_VERSIONS), lowest, highest)],
    )
    return _encode(response, 0)


@handles(
    ApiKey.API_VERSIONS,
    versions=(0, 4),
    access=Access.EVERYBODY,
    answer_unknown_version=_refuse_version,
)
def api_versions(request: ApiVersionsRequest, context: RequestContext) -> bytes:
    version = context.version
    if version >= _SOFTWARE_SINCE and not (
        _SOFTWARE_NAME.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return _encode(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST), version)
    key = (context.listener.is_internal, version)
    features = context.broker.image.features
    known = _bodies.get(key)
    if known is not None and known[0] == features:
        return known[1]
    body = _encode(_advertise(context, features), version)
    _bodies[key] = (features, body)
    return body


def _advertise(context: RequestContext, finalized: FinalizedFeatures) -> ApiVersionsResponse:
    ranges = []
    for api_key, handler in sorted(HANDLERS.items()):
        lowest, highest = handler.advertised_on(context.listener)
        # APIs that are only for brokers are not on other listeners.
        if lowest <= highest:
            ranges.append(ApiVersion(api_key, lowest, highest))
    response = ApiVersionsResponse(api_keys=ranges)
    if context.version >= _FEATURES_SINCE:
        # Clients of version 3 take a lowest level of 0 for a fault of the broker.
        response.supported_features = [
            SupportedFeatureKey(each.name, each.lowest, each.highest)
            for each in SUPPORTED_FEATURES
            if each.lowest or context.version >= _LEVEL_0_SINCE
        ]
        response.finalized_features_epoch = finalized.epoch
        # Kafka leaves out a feature with level 0.
        response.finalized_features = [
            FinalizedFeatureKey(name, max_version_level=level, min_version_level=level)
            for name, level in finalized.all_levels().items()
            if level
        ]
    return response


def _encode(response: ApiVersionsResponse, version: int) -> bytes:
    return b"".join(bytes(segment) for segment in response.encode(version))  # type: ignore[arg-type]
