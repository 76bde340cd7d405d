"""UpdateFeatures (API key 57): changes the cluster's feature level if every broker supports the new one."""

from __future__ import annotations

from chronik.admin.features import FeatureUpdate, UpgradeType, update_features
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


async def handle(services: Services, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    updates = {
        each.feature: FeatureUpdate(each.max_version_level, _decode_upgrade_type(each))
        for each in request.feature_updates
    }
    try:
        await update_features(services.store, updates, validate_only=request.validate_only)
    except KafkaError as error:
        return UpdateFeaturesResponse(**build_error_fields(error))
    return UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature=name) for name in updates])


def _decode_upgrade_type(update: FeatureUpdateKey) -> int:
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
