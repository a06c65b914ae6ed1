"""Carries Topic resources from the operator's process to the controller, some at a time.

A request holds manifests to apply and names to forget:

    {"apply": [manifest, …], "isComplete": false, "keep": [resource, …],
     "forget": [{"resource": "orders", "deleteTopic": true, "topicName": "…"}, …]}

With `isComplete` the manifests and the names in `keep` (resources that are left alone) are all that
there are: topics that other resources declared are released, never deleted. The reply has, for each
resource, `state` (ok, waiting, refused), `reason`, `message` and `topicId`. What is *waiting* (for
brokers) is not kept here: the caller asks again. A forgotten resource needs `topicName` only where
it showed a topic that was made over Kafka.

Large requests are decided in slices, so that the sessions of brokers are served in between.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead_controller.controller import Controller
from fairlead_controller.events import ApplyTopicResources, ForgetTopic
from fairlead_controller.topic_declaration import Result, build_result
from fairlead_model.resources import ManifestError, TopicSpec, parse_topic_manifest

SLICE_TOPICS: Final = 50
"""Resources decided at once: some 20 ms of the controller's loop."""
RESOURCES_PER_REQUEST_MAX: Final = 100_000


class TopicRequestError(ValueError):
    """A request that is not of the form above."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What holds for a topic whose resource does not say."""

    partitions: int = 1
    replication_factor: int = 3


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """A request that was read; `results` has what was refused already."""

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
    """Carry out a request; give the results once they are durable.

    With `waits_for` new partitions are not placed yet; it is the message that says why.
    TopicRequestError for a request that is none; RefusedError when the controller is overloaded or
    ends.
    """
    wanted = read_topic_request(request)
    results = dict(wanted.results)
    waits: list[asyncio.Task[Mapping[str, Any]]] = []
    async with asyncio.TaskGroup() as group:
        for event in _slices(wanted, defaults, waits_for):
            waits.append(group.create_task(controller.submit(event)))
            await asyncio.sleep(0)  # the slice is decided now; the loop turns before the next
    for wait in waits:
        results.update(wait.result()["results"])
    return {"results": results}


def read_topic_request(request: Mapping[str, Any]) -> TopicRequest:
    """Check the form of a request and read its manifests."""
    manifests = _list(request, "apply")
    forget = tuple(_read_forget(entry) for entry in _list(request, "forget"))
    if len(manifests) + len(forget) > RESOURCES_PER_REQUEST_MAX:
        raise TopicRequestError(f"more than {RESOURCES_PER_REQUEST_MAX} resources in one request")
    results: dict[str, Result] = {}
    readable: list[tuple[str, TopicSpec]] = []
    names: set[str] = set()
    for manifest in manifests:
        name = _resource_name(manifest)
        names.add(name)
        try:
            spec = parse_topic_manifest(manifest)
        except ManifestError as error:
            message = "; ".join(_without_label(problem, name) for problem in error.problems)
            results[name] = build_result("refused", "InvalidSpec", message)
            continue
        created = str(manifest["metadata"].get("creationTimestamp") or "")
        readable.append((created, spec))
    apply, conflicts = _settle_claims(readable)
    complete = None
    if request.get("isComplete"):
        complete = frozenset(names | set(map(str, _list(request, "keep"))) - set(conflicts))
    return TopicRequest(apply, forget, complete, results | conflicts)


def _settle_claims(
    readable: Iterable[tuple[str, TopicSpec]],
) -> tuple[tuple[TopicSpec, ...], dict[str, Result]]:
    """Of resources with one topicName the oldest goes on, by time of creation, then by name."""
    owners: dict[str, str] = {}
    winners: list[TopicSpec] = []
    conflicts: dict[str, Result] = {}
    for _, spec in sorted(readable, key=lambda each: (each[0], each[1].resource)):
        owner = owners.setdefault(spec.topic_name, spec.resource)
        if owner == spec.resource:
            winners.append(spec)
            continue
        message = f"spec.topicName: Topic {owner} is older and declares {spec.topic_name!r} too"
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
