"""One cluster's controller in this process: from taking over its tables to the end.

If the tables of a cluster cannot be taken over, the reign tries again and shows the reason; other
clusters are not affected. If somebody else has sealed or changed the tables, only this reign ends
and begins again: a label on one object must not cost other clusters their controller. Only the
Lease tells whether this process has been deposed, so it is renewed first.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from typing import Final

from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions.events import ElectLeaders, LimitCluster
from fairlead_controller.decisions.tables.stored_table import StoreError, StoreRolledBackError
from fairlead_controller.kubernetes.broker_arrivals import BrokerArrivals
from fairlead_controller.kubernetes.cluster_spec import ClusterSpec
from fairlead_controller.kubernetes.drains import Drains, PlanDrains
from fairlead_controller.kubernetes.leased_store import LeasedStore
from fairlead_controller.kubernetes.session_gate import ClusterKey
from fairlead_controller.kubernetes.topic_feed import TopicFeed
from fairlead_controller.leader_balancer import LeaderBalancer
from fairlead_controller.reassigner import Reassigner
from fairlead_controller.sessions.server import Locate, SessionServer
from fairlead_controller.sessions.session_gate import SessionGate
from fairlead_controller.stores.kubernetes import open_kubernetes_store
from fairlead_controller.stores.metadata_store import (
    SealedError,
    StoreUnavailableError,
    TableTouchedError,
)
from fairlead_kube.client import KubeClient
from fairlead_model.ids import BrokerId
from fairlead_model.session.refusals import RefusedError

logger = logging.getLogger(__name__)

RETRY_S_MIN: Final = 0.2
RETRY_S_MAX: Final = 5.0
SECRET_RETRY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a reign needs from its process."""

    client: KubeClient
    gate: SessionGate[ClusterKey]
    check_lease: Callable[[], None]
    """Does not return if this process may not act."""
    confirm_lease: Callable[[], Awaitable[None]]
    """Returns once a renewal has shown that this process still holds the Lease; otherwise never."""
    find_secret: Callable[[ClusterKey], bytes | None]
    locate: Locate
    plan_drains: Callable[[ClusterKey], PlanDrains]
    expected_brokers: Callable[[ClusterKey], Set[BrokerId] | None]
    """Ids of the brokers that a cluster's pools want; None while they are unknown."""


@dataclass(frozen=True, slots=True)
class ReignParts:
    """The parts that act for a cluster during its reign; each attempt makes new ones."""

    controller: Controller
    store: LeasedStore
    sessions: SessionServer
    feed: TopicFeed
    drains: Drains
    arrivals: BrokerArrivals


class Reign:
    """The controller of one LogCluster; `run` until it is cancelled."""

    def __init__(self, key: ClusterKey, spec: ClusterSpec, surroundings: Surroundings) -> None:
        self.key = key
        self.spec = spec
        self.problem = "the tables are being taken over"
        self.parts: ReignParts | None = None
        self.began_at = time.monotonic()
        self.takeover_s = 0.0
        """How long it took until leaders were elected, for metrics."""
        self.is_rolled_back = False
        """Whether the reign waits because its tables are older than an earlier state that was
        seen."""
        self.interruptions = 0
        """How often somebody else has changed or sealed the tables during the reign …"""
        self.last_interruption = ""
        """… and what was found the last time."""
        self._surroundings = surroundings
        self._balancing: asyncio.Task[None] | None = None
        self._spec_changed = asyncio.Event()

    @property
    def controller_epoch(self) -> int:
        """The epoch of this reign; 0 before it has an epoch."""
        return self.parts.controller.committed.controller_epoch if self.parts else 0

    @property
    def is_store_available(self) -> bool:
        """Whether decisions can be made durable now."""
        return self.parts is not None and self.parts.store.is_available

    def update(self, spec: ClusterSpec) -> None:
        """Apply the changed LogCluster."""
        is_other = spec != self.spec
        self.spec = spec
        if is_other:
            # A reign that is about to begin may have read the limits of the former spec already.
            self._spec_changed.set()
        if is_other and self.parts is not None:
            self.parts.sessions.set_timing(spec.timing)
            self._balance(self.parts.controller)

    async def run(self) -> None:
        """Reign; begin again after an interruption if another attempt may succeed."""
        retry_s = RETRY_S_MIN
        while True:
            began_at = time.monotonic()
            try:
                await self._reign()
            except Exception as error:
                await self._on_failed(_leaves(error))
            _end_if_cancelled()
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
                await controller.submit(LimitCluster(self.spec.limits))
                await controller.submit(ElectLeaders())
                sessions = SessionServer(
                    controller,
                    await self._secret(),
                    locate=around.locate,
                    timing=self.spec.timing,
                )
                arrivals = BrokerArrivals(controller, lambda: around.expected_brokers(self.key))
                self.parts = ReignParts(controller, store, sessions, feed, drains, arrivals)
                self.problem = ""
                self.is_rolled_back = False
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
                tasks.create_task(Reassigner(controller).run())
                tasks.create_task(self._follow_limits(controller))
                self._balance(controller)
                await running
        finally:
            await self._end(store)

    async def _follow_limits(self, controller: Controller) -> None:
        while True:
            await self._spec_changed.wait()
            self._spec_changed.clear()
            try:
                await controller.submit(LimitCluster(self.spec.limits))
            except RefusedError as refusal:
                logger.warning("%s/%s: limits stay as they are: %s", *self.key, refusal.message)
                await asyncio.sleep(RETRY_S_MAX)
                self._spec_changed.set()

    async def _take_over(self, store: LeasedStore) -> Controller:
        """Seal and load; a temporary failure does not prove that the Lease is lost."""
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
        parts, self.parts = self.parts, None
        if parts is not None:
            await parts.sessions.close()
        await store.close()

    def _balance(self, controller: Controller) -> None:
        """Start the timer of preferred-leader elections, as the LogCluster's config says."""
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

    async def _on_failed(self, errors: list[BaseException]) -> None:
        """Tell why a reign is over.

        Clauses of `except*` would read better, but Python 3.11.2, as of Debian, puts what they
        raise into a group again, also the cancellation of this task.
        """
        ended = [each for each in errors if isinstance(each, StoreError | RefusedError)]
        defects = [each for each in errors if each not in ended]
        if ended:
            # The end of a reign refuses the waiting events; the store's error is the reason.
            reasons = [each for each in ended if isinstance(each, StoreError)]
            await self._on_ended((reasons or ended)[0])
        if defects:
            self._note_problem(f"an error of this controller: {defects[0]!r}")
            logger.exception("%s/%s: the controller failed", *self.key)

    async def _on_ended(self, error: BaseException) -> None:
        if self.spec.is_being_deleted:
            # The deletion of its namespace removes the tables; there is no other controller.
            self._note_problem(f"the LogCluster is being deleted: {error}")
            return
        self._note_problem(str(error))
        self.is_rolled_back = isinstance(error, StoreRolledBackError)
        if isinstance(error, SealedError | TableTouchedError):
            self.interruptions += 1
            self.last_interruption = str(error)
            await self._surroundings.confirm_lease()

    def _note_problem(self, problem: str) -> None:
        if problem != self.problem:
            logger.warning("%s/%s: %s", *self.key, problem)
        self.problem = problem


def _end_if_cancelled() -> None:
    """Raise a cancellation that came while the tasks of a failed reign ended.

    Before Python 3.13, a TaskGroup raises only the errors of its tasks in this case.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]
