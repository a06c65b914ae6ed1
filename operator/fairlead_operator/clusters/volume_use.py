"""What brokers report of their volumes: which have failed, and which are empty. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fairlead_operator.clusters.rolling import BrokerState
from fairlead_operator.specs.claim_template import read_claim_templates, volume_of
from fairlead_operator.specs.names import data_volume, log_directory

WHY_LENGTH_MAX: Final = 200

FailedVolumes = Mapping[int, str]
"""A broker's failed volumes, by their ids, and how they failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVolumes:
    """The volumes that a broker's pod has, and what the broker reports of them."""

    claims: Mapping[int, str]
    """Name of the claim for each volume, by the volume's id."""
    failed: FailedVolumes = field(default_factory=dict)
    drained: frozenset[int] | None = None
    """Volumes that get no replica and hold none; None until the broker has reported it."""


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """What is known of the volumes of running brokers, each by the name of its claim."""

    unused: frozenset[str] = frozenset()
    """No pod has the claim, or its broker has just reported: it gets no replica and holds none."""
    in_use: frozenset[str] = frozenset()
    """Its broker has just reported that it may hold replicas or get some."""


def read_claims(pod: Mapping[str, Any]) -> dict[int, str]:
    """Return the claims for volumes of brokers that a pod has, by the volumes' ids."""
    found = {}
    for each in pod["spec"].get("volumes") or ():
        volume, claim = volume_of(each["name"]), each.get("persistentVolumeClaim")
        if volume is not None and claim is not None:
            found[volume] = claim["claimName"]
    return found


def read_volumes(claims: Mapping[int, str], answer: object) -> PodVolumes:
    """Return what a broker's answer says of its volumes; malformed parts are ignored."""
    if not isinstance(answer, Mapping):
        return PodVolumes(claims=claims)
    failed, drained = answer.get("failedLogDirectories"), answer.get("drainedLogDirectories", [])
    why = failed if isinstance(failed, Mapping) else {}
    is_serving = answer.get("state") == "serving" and isinstance(drained, list)
    return PodVolumes(
        claims=claims,
        failed={
            each: str(why[log_directory(each)])[:WHY_LENGTH_MAX]
            for each in claims
            if why.get(log_directory(each)) is not None
        },
        drained=frozenset(each for each in claims if log_directory(each) in drained)
        if is_serving
        else None,
    )


def failed_volumes(said: Mapping[int, PodVolumes]) -> dict[int, FailedVolumes]:
    """Return the brokers with failed volumes, of those that have answered."""
    return {broker: own.failed for broker, own in said.items() if own.failed}


def find_use(pods: Mapping[str, PodVolumes], claims: Collection[str]) -> ClaimUse:
    """Return what is known of a cluster's claims by its brokers' pods."""
    volumes = {volume for name in claims if (volume := _volume_of_claim(name)) is not None}
    unused: set[str] = set()
    in_use: set[str] = set()
    for pod, own in pods.items():
        for volume in volumes:
            if volume not in own.claims:
                unused.add(f"{data_volume(volume)}-{pod}")
            elif own.drained is not None:
                (unused if volume in own.drained else in_use).add(own.claims[volume])
    return ClaimUse(frozenset(unused & set(claims)), frozenset(in_use))


def note_unsaid(
    brokers: Iterable[BrokerState],
    pods: Mapping[str, PodVolumes],
    stateful_set: Mapping[str, Any] | None,
) -> list[BrokerState]:
    """Return the brokers of a pool, each with volumes that it must not lose by a restart."""
    if stateful_set is None:
        return list(brokers)
    stays = {each.volume for each in read_claim_templates(stateful_set)}
    noted = []
    for broker in brokers:
        own = pods.get(broker.pod, PodVolumes(claims={}))
        unsaid = own.claims.keys() - stays - (own.drained or frozenset())
        noted.append(replace(broker, unsaid_volumes=tuple(sorted(unsaid))))
    return noted


def _volume_of_claim(name: str) -> int | None:
    first, second, *_ = (*name.split("-"), "")
    return volume_of(f"{first}-{second}" if second.isdecimal() else first)
