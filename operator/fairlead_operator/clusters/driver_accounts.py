"""Carries out what `fairlead_operator/specs/driver_account` decides for each LogCluster.

The objects are not watched, because that would need permission to list all accounts. They are read
after each change of their LogCluster, and once a minute.
"""

import time
from collections.abc import Callable
from typing import Final

from fairlead_kube.kinds import ROLE_BINDING, SERVICE_ACCOUNT, ResourceKind
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.refusals import Refusals
from fairlead_operator.specs.driver_account import (
    AccountStep,
    build_driver_account,
    build_driver_binding,
    decide_account_step,
)
from fairlead_operator.specs.views import ClusterView, Manifest

LOOK_S: Final = 60.0


class DriverAccounts:
    """The accounts of all clusters; `role` is the drivers' role, empty if they get none."""

    def __init__(
        self, writer: ApiWriter, role: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._writer = writer
        self._role = role
        self._monotonic = monotonic
        self._settled: dict[str, tuple[int, float]] = {}
        """By the uid of a LogCluster: its last generation without a problem, and when to read
        again."""

    async def look_after(self, cluster: ClusterView, refusals: Refusals) -> None:
        """Create or delete a cluster's account; note the API server's refusals."""
        if not self._role:
            return
        now = self._monotonic()
        generation, look_at = self._settled.get(cluster.uid, (0, 0.0))
        if generation == cluster.generation and now < look_at:
            return
        is_settled = await self._see_to(cluster, refusals)
        if is_settled:
            self._settled = {uid: each for uid, each in self._settled.items() if each[1] > now}
            self._settled[cluster.uid] = cluster.generation, now + LOOK_S

    async def _see_to(self, cluster: ClusterView, refusals: Refusals) -> bool:
        steps = []
        for kind, manifest in (
            (SERVICE_ACCOUNT, build_driver_account(cluster)),
            (ROLE_BINDING, build_driver_binding(cluster, self._role)),
        ):
            step = AccountStep.WAIT
            with refusals.noting(kind.kind, manifest["metadata"]["name"]):
                step = await self._take(kind, manifest, cluster)
            steps.append(step)
            if step is AccountStep.LEAVE and cluster.spec.spark.driver_account:
                # The owner of the account decides what the account may do.
                break
        return all(step in (AccountStep.KEEP, AccountStep.LEAVE) for step in steps)

    async def _take(
        self, kind: ResourceKind, manifest: Manifest, cluster: ClusterView
    ) -> AccountStep:
        live = await self._writer.find(kind, manifest)
        step = decide_account_step(manifest, live, cluster)
        if step is AccountStep.CREATE:
            await self._writer.create(kind, manifest)
        elif step is AccountStep.DELETE and live is not None:
            await self._writer.delete(kind, live)
        return step
