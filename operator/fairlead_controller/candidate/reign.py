"""One cluster's controller in this process: from taking over its tables to the end.

A cluster whose tables cannot be taken over is tried again and says why; the others do not notice.
Tables that somebody else has sealed are another matter: then this process has been deposed.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Final

from fairlead_controller.candidate.broker_arrivals import BrokerArrivals
from fairlead_controller.candidate.cluster_spec import ClusterSpec
from fairlead_controller.candidate.drains import Drains, PlanDrains
from fairlead_controller.candidate.leased_store import LeasedStore
from fairlead_controller.candidate.session_gate import ClusterKey, SessionGate
from fairlead_controller.candidate.topic_feed import TopicFeed
from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.events import ElectLeaders
from fairlead_controller.kube.client import KubeClient
from fairlead_controller.leader_balancer import LeaderBalancer
from fairlead_controller.session_server import Locate, SessionServer
from fairlead_controller.stores.kubernetes import StoreUnavailableError, open_kubernetes_store
from fairlead_controller.stores.metadata_store import SealedError, StoreError
from fairlead_model.ids import BrokerId
from fairlead_model.refusals import RefusedError

logger = logging.getLogger(__name__)

RETRY_S_MIN: Final = 0.2
RETRY_S_MAX: Final = 5.0
SECRET_RETRY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a reign needs of the process that it is in."""

    client: KubeClient
    gate: SessionGate
    check_lease: Callable[[], None]
    """Does not return if this process may not act."""
    on_deposed: Callable[[str], None]
    """Does not return."""
    find_secret: Callable[[ClusterKey], bytes | None]
    locate: Locate
    plan_drains: Callable[[ClusterKey], PlanDrains]
    expected_brokers: Callable[[ClusterKey], Set[BrokerId]]
    """Ids of the brokers that a cluster's pools ask for."""


@dataclass(frozen=True, slots=True)
class Government:
    """What acts for a cluster while it is reigned; made anew for each attempt."""

    controller: Controller
    store: LeasedStore
    sessions: SessionServer
    feed: TopicFeed
    drains: Drains
    arrivals: BrokerArrivals


class Reign:
    """One LogCluster's; `run` until it is cancelled."""

    def __init__(self, key: ClusterKey, spec: ClusterSpec, surroundings: Surroundings) -> None:
        self.key = key
        self.spec = spec
        self.problem = "the tables are being taken over"
        self.government: Government | None = None
        self.began_at = time.monotonic()
        self.takeover_s = 0.0
        """How long it took until leaders were elected, for metrics."""
        self._surroundings = surroundings
        self._balancing: asyncio.Task[None] | None = None

    @property
    def controller_epoch(self) -> int:
        """The epoch of this reign; 0 before it has one."""
        return self.government.controller.committed.controller_epoch if self.government else 0

    @property
    def is_store_available(self) -> bool:
        """Whether decisions can be made durable now."""
        return self.government is not None and self.government.store.is_available

    def update(self, spec: ClusterSpec) -> None:
        """The LogCluster has changed."""
        is_other = spec != self.spec
        self.spec = spec
        if is_other and self.government is not None:
            self._balance(self.government.controller)

    async def run(self) -> None:
        """Reign; begin again after what may pass."""
        retry_s = RETRY_S_MIN
        while True:
            began_at = time.monotonic()
            try:
                await self._reign()
            except* SealedError as group:
                self._on_sealed(group.exceptions[0])
            except* (StoreError, RefusedError) as group:
                # A reign that ends refuses what still waits; the reason is the store's.
                reasons = [each for each in _leaves(group) if isinstance(each, StoreError)]
                self._note_problem(str((reasons or _leaves(group))[0]))
            except* Exception as group:
                self._note_problem(f"an error of this controller: {_leaves(group)[0]!r}")
                logger.exception("%s/%s: the controller failed", *self.key)
            if time.monotonic() - began_at > RETRY_S_MAX:
                retry_s = RETRY_S_MIN
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_S_MAX)

    async def _reign(self) -> None:
        around, (namespace, cluster) = self._surroundings, self.key
        started = time.monotonic()
        around.check_lease()
        store = LeasedStore(
            await open_kubernetes_store(around.client, namespace, cluster), around.check_lease
        )
        try:
            controller = await self._take_over(store)
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(controller.run())
                feed = TopicFeed(controller)
                drains = Drains(controller, around.plan_drains(self.key))
                await controller.submit(ElectLeaders())
                sessions = SessionServer(controller, await self._secret(), locate=around.locate)
                arrivals = BrokerArrivals(controller, lambda: around.expected_brokers(self.key))
                self.government = Government(controller, store, sessions, feed, drains, arrivals)
                self.problem = ""
                self.takeover_s = time.monotonic() - started
                logger.info(
                    "%s/%s: controller epoch %d after %.0f ms",
                    *self.key,
                    controller.committed.controller_epoch,
                    1000 * self.takeover_s,
                )
                around.gate.open(self.key, sessions)
                tasks.create_task(sessions.watch())
                tasks.create_task(drains.run())
                self._balance(controller)
                await running
        finally:
            await self._end(store)

    async def _take_over(self, store: LeasedStore) -> Controller:
        """Seal and load; what another attempt may cure is no proof of having been deposed."""
        try:
            return await open_controller(store, now_ms=lambda: time.time_ns() // 1_000_000)
        except SealedError as error:
            self._surroundings.check_lease()
            raise StoreUnavailableError(f"the tables are not sealed yet: {error}") from error

    async def _secret(self) -> bytes:
        while (secret := self._surroundings.find_secret(self.key)) is None:
            self.problem = "the cluster's session Secret is not there yet"
            await asyncio.sleep(SECRET_RETRY_S)
        return secret

    async def _end(self, store: LeasedStore) -> None:
        self._surroundings.gate.close(self.key)
        if self._balancing is not None:
            self._balancing.cancel()
        government, self.government = self.government, None
        if government is not None:
            await government.sessions.close()
        await store.close()

    def _balance(self, controller: Controller) -> None:
        """Start the timer of preferred leaders as the LogCluster's config says."""
        if self._balancing is not None:
            self._balancing.cancel()
            self._balancing = None
        if self.spec.balances_leaders:
            balancer = LeaderBalancer(
                controller,
                interval_s=self.spec.balance_interval_s,
                imbalance_percentage_max=self.spec.imbalance_percentage_max,
            )
            self._balancing = asyncio.create_task(balancer.run())

    def _on_sealed(self, error: BaseException) -> None:
        if self.spec.is_being_deleted:
            # Its namespace takes the tables away; that is no other controller.
            self._note_problem(f"the LogCluster is being deleted: {error}")
            return
        self._surroundings.on_deposed(f"{self.key[0]}/{self.key[1]}: {error}")

    def _note_problem(self, problem: str) -> None:
        if problem != self.problem:
            logger.warning("%s/%s: %s", *self.key, problem)
        self.problem = problem


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves
