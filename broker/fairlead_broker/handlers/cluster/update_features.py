"""UpdateFeatures (key 57), versions 0-2.

Behaviour: gives features other levels (`kafka-features.sh upgrade`, `downgrade`, `disable`). The
controller refuses a level that a broker of the cluster does not support, also one that is out of
service, with INVALID_UPDATE_VERSION and a sentence that names it. All updates hold or none does.
`fairlead.version` never falls; `group.version` and `transaction.version` may.
Versions:  1 validate_only, and a type of upgrade instead of allow_downgrade · 2 no result for each
           feature any more.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.session.controller_calls import ask_controller
from fairlead_model.session.calls import (
    FeatureUpdate,
    FeatureUpgradeType,
    Method,
    UpdateFeaturesCall,
)
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext

_FEATURES_MAX = 100
_UPGRADE_TYPE_SINCE = 1
_RESULTS_UNTIL = 1


def _refuse_access(
    request: UpdateFeaturesRequest, context: RequestContext, code: ErrorCode
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=None)


@handles(
    ApiKey.UPDATE_FEATURES, versions=(0, 2), access=needs_cluster(Operation.ALTER, _refuse_access)
)
def update_features(request: UpdateFeaturesRequest, context: RequestContext) -> Pending:
    """Forward to the controller."""
    if len(request.feature_updates) > _FEATURES_MAX:
        raise RemoteProtocolError(f"UpdateFeatures names {len(request.feature_updates)} features")
    return context.later(_update(request, context))


async def _update(
    request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    call = UpdateFeaturesCall(
        updates=[
            FeatureUpdate(
                feature=update.feature,
                level=update.max_version_level,
                upgrade_type=_upgrade_type(update, context.version),
            )
            for update in request.feature_updates
        ],
        validate_only=request.validate_only,
    )
    try:
        await ask_controller(
            context.broker, Method.UPDATE_FEATURES, call, timeout_ms=request.timeout_ms
        )
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message or None)
    response = UpdateFeaturesResponse(error_message=None)
    if context.version <= _RESULTS_UNTIL:
        response.results = [
            UpdatableFeatureResult(feature=update.feature, error_message=None)
            for update in request.feature_updates
        ]
    return response


def _upgrade_type(update: FeatureUpdateKey, version: int) -> int:
    if version >= _UPGRADE_TYPE_SINCE:
        return update.upgrade_type
    kind = FeatureUpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else None
    return int(kind or FeatureUpgradeType.UPGRADE)
