"""Carries Topic resources from the operator's process to the controller, some per request.

A request holds manifests to apply and names to forget:

    {"apply": [manifest, …], "isComplete": false, "keep": [resource, …],
     "forget": [{"resource": "orders", "deleteTopic": true, "topicName": "…"}, …]}

Resources are identified by their references (`fairlead_model.resources.topic_claims`). Beside its
own fields a manifest has its `reference`, and `mayAdopt` says whether it may adopt a topic that no
resource declares.

With `isComplete`, the manifests and the names in `keep` (resources that are left alone) are all
existing resources: topics that other resources declared are released, never deleted. The reply has,
for each resource, `state` (ok, waiting, refused), `reason`, `message` and `topicId`. The controller
does not keep a *waiting* resource (which waits for brokers): the caller asks again. A forgotten
resource needs `topicName` only if it showed a topic that was created over Kafka.

Large requests are decided in slices, so that the sessions of brokers are served in between.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import ApplyTopicResources, ForgetTopic
from fairlead_controller.decisions.topics.resource_changes import Result, build_result
from fairlead_controller.kubernetes.sliced_calls import submit_slices
from fairlead_model.resources.topic_claims import Claimant, oldest, read_claimant
from fairlead_model.resources.topic_manifest import ManifestError, TopicSpec, parse_topic_manifest

SLICE_TOPICS: Final = 50
"""Resources decided in one slice: some 20 ms of the controller's loop."""
RESOURCES_PER_REQUEST_MAX: Final = 100_000
_BESIDE: Final = ("reference", "mayAdopt")


class TopicRequestError(ValueError):
    """The request is malformed."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Values for a topic whose resource does not set them."""

    partitions: int = 1
    replication_factor: int = 3


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """A parsed request; `results` has the resources that were already refused."""

    apply: tuple[TopicSpec, ...]
    forget: tuple[ForgetTopic, ...]
    complete: frozenset[str] | None
    results: Mapping[str, Result]


async def apply_topics(
    controller: Controller,
    request: Mapping[str, Any],
    defaults: TopicDefaults,
    waits_for: str = "",
) -> dict[str, Any]:
    """Apply a request; return the results once they are durable.

    With `waits_for`, which is the message with the reason, no new partitions are placed yet.
    TopicRequestError if the request is malformed; RefusedError if the controller is overloaded or
    ends.
    """
    # In a thread: a request with all resources may have very many manifests.
    wanted = await asyncio.to_thread(read_topic_request, request)
    decided = await submit_slices(controller, _slices(wanted, defaults, waits_for))
    return {"results": dict(wanted.results) | decided}


def read_topic_request(request: Mapping[str, Any]) -> TopicRequest:
    """Check the form of a request and read its manifests."""
    manifests = _list(request, "apply")
    forget = tuple(_read_forget(entry) for entry in _list(request, "forget"))
    if len(manifests) + len(forget) > RESOURCES_PER_REQUEST_MAX:
        raise TopicRequestError(f"more than {RESOURCES_PER_REQUEST_MAX} resources in one request")
    results: dict[str, Result] = {}
    readable: list[tuple[Claimant, TopicSpec]] = []
    names: set[str] = set()
    for manifest in manifests:
        name = _resource_name(manifest)
        reference = str(manifest.get("reference") or name)
        names.add(reference)
        try:
            spec = parse_topic_manifest(
                {key: value for key, value in manifest.items() if key not in _BESIDE}
            )
        except ManifestError as error:
            message = "; ".join(_without_label(problem, name) for problem in error.problems)
            results[reference] = build_result("refused", "InvalidSpec", message)
            continue
        may_adopt = manifest.get("mayAdopt") is not False
        spec = replace(spec, resource=reference, may_adopt=may_adopt)
        readable.append((read_claimant(manifest["metadata"], reference), spec))
    apply, conflicts = _settle_claims(readable)
    complete = None
    if request.get("isComplete"):
        complete = frozenset(names | set(map(str, _list(request, "keep"))) - set(conflicts))
    return TopicRequest(apply, forget, complete, results | conflicts)


def _settle_claims(
    readable: Iterable[tuple[Claimant, TopicSpec]],
) -> tuple[tuple[TopicSpec, ...], dict[str, Result]]:
    """Choose the oldest of the resources with the same topicName; refuse the others."""
    claimants: dict[str, list[Claimant]] = {}
    specs = sorted(readable, key=lambda each: each[0])
    for claimant, spec in specs:
        claimants.setdefault(spec.topic_name, []).append(claimant)
    owners = {topic_name: oldest(each) for topic_name, each in claimants.items()}
    winners: list[TopicSpec] = []
    conflicts: dict[str, Result] = {}
    for claimant, spec in specs:
        owner, name = owners[spec.topic_name], spec.topic_name
        if owner == claimant:
            winners.append(spec)
            continue
        message = f"spec.topicName: Topic {owner.reference} is older and declares {name!r} too"
        conflicts[spec.resource] = build_result("refused", "Conflict", message)
    return tuple(winners), conflicts


def _slices(
    wanted: TopicRequest, defaults: TopicDefaults, waits_for: str = ""
) -> Iterable[ApplyTopicResources]:
    parts: list[tuple[Sequence[ForgetTopic], Sequence[TopicSpec]]] = [
        (wanted.forget[at : at + SLICE_TOPICS], ())
        for at in range(0, len(wanted.forget), SLICE_TOPICS)
    ]
    if wanted.complete is not None:
        parts.append(((), ()))
    released_at = len(parts) - 1 if wanted.complete is not None else -1
    parts += [
        ((), wanted.apply[at : at + SLICE_TOPICS])
        for at in range(0, len(wanted.apply), SLICE_TOPICS)
    ]
    for number, (forget, apply) in enumerate(parts):
        yield ApplyTopicResources(
            apply=tuple(apply),
            forget=tuple(forget),
            complete=wanted.complete if number == released_at else None,
            default_partitions=defaults.partitions,
            default_replication_factor=defaults.replication_factor,
            waits_for=waits_for,
        )


def _list(request: Mapping[str, Any], name: str) -> list[Any]:
    value = request.get(name) or []
    if not isinstance(value, list):
        raise TopicRequestError(f"{name}: expected a list")
    return value


def _read_forget(entry: object) -> ForgetTopic:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("resource"), str):
        raise TopicRequestError("forget: each entry names its resource")
    return ForgetTopic(
        resource=entry["resource"],
        is_deleting_topic=bool(entry.get("deleteTopic")),
        topic_name=str(entry.get("topicName") or ""),
    )


def _resource_name(manifest: object) -> str:
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        raise TopicRequestError("apply: each manifest has a metadata.name")
    return name


def _without_label(problem: str, name: str) -> str:
    return problem.removeprefix(f"Topic {name}: ")
