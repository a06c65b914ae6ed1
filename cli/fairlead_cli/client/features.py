"""Read and change feature levels through brokers (KIP-584).

librdkafka's Python client has neither request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_cli.client.answering import Address
from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, fetch_metadata
from fairlead_cli.client.survey import ask_every_broker, newest_version
from fairlead_cli.client.wire_call import call_broker
from fairlead_cli.errors import CliError
from fairlead_cli.wire_exchange import name_error
from fairlead_model.release import RELEASE
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka.admin import AdminClient

    from fairlead_model.session.calls import FeatureUpgradeType

API_VERSIONS_MAX = 4
FEATURES_SINCE = 3
UPDATE_FEATURES_VERSION = 1


class Told(NamedTuple):
    """The features in one broker's answer."""

    epoch: int
    levels: Mapping[str, int]
    supported: Mapping[str, tuple[int, int]]


class FeatureSurvey(NamedTuple):
    """The features in the answers of all brokers that answer."""

    epoch: int
    levels: Mapping[str, int]
    """Finalized levels, from the broker with the newest ones; 0 for a feature that is off."""
    supported: Mapping[int, Mapping[str, tuple[int, int]]]
    """By broker and name: the lowest and the highest supported level."""
    unanswered: list[str]

    def highest_of_all(self, name: str) -> int | None:
        """Return the highest level that every answering broker supports; None if there is none."""
        ranges = [ranges.get(name) for ranges in self.supported.values()]
        highest = [each[1] for each in ranges if each is not None]
        return min(highest) if highest and len(highest) == len(ranges) else None


def survey_features(admin: AdminClient) -> FeatureSurvey:
    """Ask every broker; CliError if none answers."""
    answers, unanswered = ask_every_broker(admin, ask_features)
    if not answers:
        raise CliError("no broker says which features it has: " + "; ".join(unanswered))
    newest = max(answers.values(), key=lambda told: told.epoch)
    names = sorted({name for told in answers.values() for name in told.supported})
    return FeatureSurvey(
        newest.epoch,
        {name: newest.levels.get(name, 0) for name in sorted({*names, *newest.levels})},
        {broker_id: answers[broker_id].supported for broker_id in sorted(answers)},
        unanswered,
    )


def ask_features(at: Address) -> Told:
    """Ask one broker; CliError if it is too old for features."""
    request = ApiVersionsRequest("fairlead", RELEASE)
    version = newest_version(at, request.API_KEY, API_VERSIONS_MAX)
    if version is None or version < FEATURES_SINCE:
        raise CliError("is too old to know features")
    reply = call_broker(at.host, at.port, request, version)
    return Told(
        reply.finalized_features_epoch,
        {each.name: each.max_version_level for each in reply.finalized_features},
        {each.name: (each.min_version, each.max_version) for each in reply.supported_features},
    )


def update_levels(
    admin: AdminClient,
    levels: Mapping[str, int],
    kind: FeatureUpgradeType,
    *,
    validate_only: bool = False,
) -> str:
    """Change feature levels, all or none; return why not, empty if they are changed."""
    request = UpdateFeaturesRequest(
        timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
        feature_updates=[
            FeatureUpdateKey(name, level, upgrade_type=int(kind)) for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    at = find_updating_broker(admin)
    reply = call_broker(at.host, at.port, request, UPDATE_FEATURES_VERSION)
    errors = [(reply.error_code, reply.error_message)]
    errors += [(each.error_code, each.error_message) for each in reply.results]
    for code, message in errors:
        if code:
            return message or name_error(code)
    return ""


def find_updating_broker(admin: AdminClient) -> Address:
    """Return a broker that supports UpdateFeatures; CliError if all are too old.

    During an upgrade some are too old, and Metadata may name one of these as the controller.
    """
    metadata = fetch_metadata(admin)
    reasons = []
    for broker in sorted(
        metadata.brokers.values(), key=lambda broker: broker.id != metadata.controller_id
    ):
        at = Address(broker.host, broker.port)
        try:
            offered = newest_version(at, UpdateFeaturesRequest.API_KEY, UPDATE_FEATURES_VERSION)
        except CliError as error:
            reasons.append(f"broker {broker.id}: {error.message}")
            continue
        if offered == UPDATE_FEATURES_VERSION:
            return at
        reasons.append(f"broker {broker.id} is too old")
    raise CliError("no broker can change feature levels: " + "; ".join(reasons))
