"""Readers and API server say yes or no to the same manifests: every field, spoilt in turn."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from resource_cases import CASES

from fairlead_kube import kinds
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import ResourceKind
from fairlead_operator.resources import (
    BrokerPoolSpec,
    FailoverDrillSpec,
    LogClusterSpec,
    ManifestError,
    parse_topic_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairlead_kube.client import KubeClient

    Run = Callable[[Any], Any]

pytestmark = pytest.mark.kubernetes

Manifest = dict[str, Any]
KINDS: dict[str, tuple[ResourceKind, Callable[[Manifest], object]]] = {
    "LogCluster": (kinds.LOG_CLUSTER, LogClusterSpec.from_manifest),
    "BrokerPool": (kinds.BROKER_POOL, BrokerPoolSpec.from_manifest),
    "Topic": (kinds.TOPIC, parse_topic_manifest),
    "FailoverDrill": (kinds.FAILOVER_DRILL, FailoverDrillSpec.from_manifest),
}
SPOILT: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1,
        9095,
        2**31,
        2**60,
        0.5,
        "",
        "1",
        "1Gi",
        "a",
        "A",
        "a.b",
        "-",
        "ä",
        "a\n",
    ),
    *("10Gi\n", "Leader", "x" * 33, "x" * 5000, [], [1], ["a"], [{}], {}, {"a": 1}, {"a": "b"}),
    *({"a": None}, {"a": []}, {"A b": {}}),
)
UNKNOWN_SETTINGS: tuple[Any, ...] = ({"a": 1}, {"a": "b"}, {"a": None})
"""Only readers know the names of settings."""
IN_FLIGHT = 16


@dataclass(frozen=True)
class DryRunKind(ResourceKind):
    """A kind whose objects are checked and not made."""

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        path = ResourceKind.path(self, namespace, name, subresource)
        return f"{path}?dryRun=All&fieldValidation=Strict"


def places(value: Any, path: str) -> Iterator[str]:
    """Paths of all fields below a value, those of settings aside: their names are ours to know."""
    if isinstance(value, dict) and not path.endswith("config"):
        for name, inner in value.items():
            yield f"{path}.{name}"
            yield from places(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield f"{path}.{index}"
            yield from places(inner, f"{path}.{index}")


def spoil(manifest: Manifest, path: str, value: Any) -> Manifest:
    """The manifest with another value at one place."""
    spoilt = deepcopy(manifest)
    *parents, last = path.split(".")
    place: Any = spoilt
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    place[int(last) if isinstance(place, list) else last] = value
    return spoilt


def full(kind: str) -> Manifest:
    title = f"a full {kind}"
    return next(case.manifest for case in CASES if case.title == title)


def reader_takes(manifest: Manifest) -> bool:
    try:
        KINDS[manifest["kind"]][1](manifest)
    except ManifestError:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("LogCluster", "cluster"),
        ("BrokerPool", "pool"),
        ("Topic", "topic"),
        ("FailoverDrill", "drill"),
    ],
)
def test_every_spoilt_field_gets_the_same_verdict(
    kube: KubeClient, namespace: str, run: Run, kind: str, name: str
) -> None:
    manifest = full(name)
    known = KINDS[kind][0]
    dry = DryRunKind(known.group, known.version, known.kind, known.plural)
    turns = asyncio.Semaphore(IN_FLIGHT)

    async def server_takes(spoilt: Manifest) -> str:
        """Empty where it does, else why not."""
        async with turns:
            try:
                await kube.create(dry, namespace, spoilt)
            except ApiError as error:
                assert error.status in {400, 422}, error
                return str(error)
            return ""

    tried = [
        (path, value, spoil(manifest, path, value))
        for path in ("spec", *places(manifest["spec"], "spec"))
        for value in SPOILT
        if not (path.endswith("config") and value in UNKNOWN_SETTINGS)
    ]

    async def ask() -> list[str]:
        return await asyncio.gather(*(server_takes(spoilt) for _, _, spoilt in tried))

    refusals = run(ask())
    drift = [
        f"{path} = {value!r:.40}: the server says {refusal or 'yes'}"
        for (path, value, spoilt), refusal in zip(tried, refusals, strict=True)
        if reader_takes(spoilt) is bool(refusal)
    ]
    assert not drift, "\n".join(drift)
