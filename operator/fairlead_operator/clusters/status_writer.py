"""Writes statuses: only what differs, and at most once a second for each object."""

import time
from datetime import UTC, datetime
from functools import partial
from typing import Final

from fairlead_kube.kinds import BROKER_POOL, LOG_CLUSTER, ResourceKind
from fairlead_kube.object_changes import ObjectChange
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.status import (
    BROKERS_FENCED,
    CERTIFICATE_PROBLEM,
    CERTIFICATES_READY,
    VOLUMES_FAILED,
    ClusterFacts,
    PoolFacts,
    build_cluster_status,
    build_pool_status,
    pool_problem,
)
from fairlead_operator.conditions import find_condition, shortened
from fairlead_operator.cut_fields import CutFields
from fairlead_operator.events import EventWriter
from fairlead_operator.live_objects import LiveObjects, Manifest
from fairlead_operator.topics.topic_status import build_status_patch

INTERVAL_S: Final = 1.0


TOLD_REASONS: Final = frozenset({"BrokersFailing", "Refused", "StoreRolledBack"})
"""Reasons of a LogCluster's Ready that need a person to act."""


class StatusWriter:
    """The only writer of the status of LogClusters and BrokerPools."""

    def __init__(self, live: LiveObjects, writer: ApiWriter, events: EventWriter) -> None:
        self._live = live
        self._writer = writer
        self._events = events
        self._written_at: dict[str, float] = {}
        """By uid; those that were written long ago are left out."""
        self._cut = {LOG_CLUSTER: CutFields(), BROKER_POOL: CutFields()}
        for kind in self._cut:
            live.follow(kind, partial(self._on_change, kind))

    async def write_cluster(self, manifest: Manifest, facts: ClusterFacts) -> bool:
        """Write a LogCluster's status; tell whether it is up to date now."""
        status = build_cluster_status(facts, manifest.get("status") or {}, datetime.now(UTC))
        if facts.problem is not None:
            await self._tell_problem(manifest, "Ready", *facts.problem)
        ready = find_condition(status["conditions"], "Ready") or {}
        if ready.get("reason") in TOLD_REASONS:
            await self._tell_problem(manifest, "Ready", ready["reason"], ready["message"])
        certificates = find_condition(status["conditions"], CERTIFICATES_READY) or {}
        if certificates.get("reason") == CERTIFICATE_PROBLEM:
            message = certificates["message"]
            await self._tell_problem(manifest, CERTIFICATES_READY, CERTIFICATE_PROBLEM, message)
        fences = find_condition(status["conditions"], BROKERS_FENCED) or {}
        if fences.get("status") == "False":
            await self._tell_problem(manifest, BROKERS_FENCED, fences["reason"], fences["message"])
        return await self._write(LOG_CLUSTER, manifest, status)

    async def write_pool(self, manifest: Manifest, facts: PoolFacts) -> bool:
        """Write a BrokerPool's status; tell whether it is up to date now."""
        status = build_pool_status(facts, manifest.get("status") or {}, datetime.now(UTC))
        problem = pool_problem(facts)
        if problem is not None:
            await self._tell_problem(manifest, "Blocked", *problem)
        failed = find_condition(status["conditions"], VOLUMES_FAILED)
        if failed is not None:
            await self._tell_problem(manifest, VOLUMES_FAILED, failed["reason"], failed["message"])
        return await self._write(BROKER_POOL, manifest, status)

    async def write_pool_problem(self, manifest: Manifest, reason: str, message: str) -> bool:
        """Report why a pool cannot be reconciled at all."""
        generation = int(manifest["metadata"].get("generation", 1))
        facts = PoolFacts(generation=generation, problem=(reason, message))
        return await self.write_pool(manifest, facts)

    async def _tell_problem(
        self, manifest: Manifest, condition: str, reason: str, message: str
    ) -> None:
        """Emit an Event for a problem that the present conditions do not show yet."""
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        known = find_condition(conditions, condition) or {}
        if (known.get("reason"), known.get("message")) != (reason, shortened(message)):
            await self._events.emit(manifest, reason, message, "Warning")

    async def _write(self, kind: ResourceKind, manifest: Manifest, status: Manifest) -> bool:
        metadata, now = manifest["metadata"], time.monotonic()
        key, uid = (metadata["namespace"], metadata["name"]), metadata["uid"]
        before = manifest.get("status") or {}
        fields = build_status_patch(before, status)
        fields = self._cut[kind].without_cut(key, uid, fields, before)
        if not fields:
            return True
        if now - self._written_at.get(uid, -INTERVAL_S) < INTERVAL_S:
            return False
        kept = await self._writer.write_status(kind, manifest, status)
        self._written_at = {
            each: at for each, at in self._written_at.items() if now - at < INTERVAL_S
        }
        self._written_at[uid] = now
        if self._live.seen(kind, *key) is not None:
            self._cut[kind].note(key, uid, fields, kept)
        return True

    def _on_change(self, kind: ResourceKind, change: ObjectChange) -> None:
        if change.new is None:
            self._cut[kind].forget(change.key)
