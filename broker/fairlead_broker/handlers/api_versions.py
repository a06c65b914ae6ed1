"""ApiVersions (key 18), versions 0 to 4.

Behaviour: answers what this listener serves, from the registry; encoded once a listener kind and
version. A version that we don't know is answered with UNSUPPORTED_VERSION in the layout of
version 0, with the range of ApiVersions itself, so that clients can choose another and ask again.
Versions:  1 throttle time · 3 client software name and version, flexible, feature tags · 4 lets
           features begin at 0.
Missing:   features: none are supported or finalized, so none are told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from fairlead_broker.handlers.registry import HANDLERS, handles
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.handlers.registry import RequestContext

_SOFTWARE_SINCE: Final = 3
_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")

_bodies: dict[tuple[bool, int], bytes] = {}


def _refuse_version(context: RequestContext) -> bytes:
    lowest, highest = HANDLERS[ApiKey.API_VERSIONS].advertised_on(context.listener)
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(int(ApiKey.API_VERSIONS), lowest, highest)],
    )
    return _encode(response, 0)


@handles(ApiKey.API_VERSIONS, versions=(0, 4), answer_unknown_version=_refuse_version)
def api_versions(request: ApiVersionsRequest, context: RequestContext) -> bytes:
    version = context.version
    if version >= _SOFTWARE_SINCE and not (
        _SOFTWARE_NAME.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return _encode(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST), version)
    key = (context.listener.is_internal, version)
    body = _bodies.get(key)
    if body is None:
        body = _bodies[key] = _encode(_advertise(context), version)
    return body


def _advertise(context: RequestContext) -> ApiVersionsResponse:
    ranges = []
    for api_key, handler in sorted(HANDLERS.items()):
        if not handler.is_served_on(context.listener):
            continue
        lowest, highest = handler.advertised_on(context.listener)
        ranges.append(ApiVersion(api_key, lowest, highest))
    return ApiVersionsResponse(api_keys=ranges)


def _encode(response: ApiVersionsResponse, version: int) -> bytes:
    return b"".join(bytes(segment) for segment in response.encode(version))  # type: ignore[arg-type]
