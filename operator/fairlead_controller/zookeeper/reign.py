"""The reign of an elected candidate: it takes over the tables and admits brokers."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions.cluster_limits import ClusterLimits
from fairlead_controller.decisions.events import ElectLeaders, LimitCluster
from fairlead_controller.decisions.tables.security_lines import SECURITY_TABLE_PREFIX
from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.leader_balancer import LeaderBalancer
from fairlead_controller.pages.controller_pages import Reigning
from fairlead_controller.reassigner import Reassigner
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.startup_topics import Declarations
from fairlead_controller.stores.metadata_store import StoreUnavailableError
from fairlead_controller.stores.zookeeper import ZooKeeperStore
from fairlead_controller.stores.zookeeper_multis import Fence
from fairlead_controller.stores.zookeeper_sweep import ZnodeSweep
from fairlead_controller.zookeeper.admin_requests import AdminRequests
from fairlead_controller.zookeeper.settings import CandidateSettings
from fairlead_zookeeper.access_settings import SET_ACL
from fairlead_zookeeper.client import SessionLostError, ZooKeeperClient, ZooKeeperError
from fairlead_zookeeper.znodes import table_path

logger = logging.getLogger(__name__)

T = TypeVar("T")

UNAVAILABLE_RETRY_S: Final = 0.1
SWEEP_INTERVAL_S: Final = 300.0
SWEEP_SOON_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Reign:
    """The parts that act while this process is the controller."""

    store: ZooKeeperStore
    parts: Reigning
    requests: AdminRequests
    sweep: ZnodeSweep
    takeover_s: float
    """How long it took until leaders were elected, for metrics."""


class TakeoverFailedError(Exception):
    """The tables could not be taken over; nothing was decided, so others may try. Has the cause."""

    def __init__(self, cause: StoreError) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def run_reign(
    client: ZooKeeperClient,
    fence: Fence,
    settings: CandidateSettings,
    *,
    remember: Callable[[str, int], None],
    on_begun: Callable[[Reign], None],
) -> None:
    """Reign until cancelled; TakeoverFailedError before the reign began, any other error later.

    `remember` stores cluster and epoch outside of ZooKeeper, before any decision; `on_begun` admits
    brokers.
    """
    started = time.monotonic()
    store = ZooKeeperStore(client, fence)
    try:
        try:
            controller = await take_over(client, store)
            limits = await find_limits(client, store, settings)
            state = controller.committed
            await asyncio.to_thread(remember, state.image.cluster_id, state.controller_epoch)
        except StoreError as error:
            raise TakeoverFailedError(error) from error
        configs = settings.configs
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.run())
            await controller.submit(LimitCluster(limits))
            await controller.submit(ElectLeaders())
            declarations = Declarations(
                controller, settings.declared, expected_brokers=settings.expected_brokers
            )
            sessions = SessionServer(controller, settings.secret, timing=configs.timing)
            requests = AdminRequests(client, store, controller, fence)
            sweep = ZnodeSweep(client, fence, store)
            took_s = time.monotonic() - started
            logger.info("controller epoch %d after %.0f ms", fence.controller_epoch, 1000 * took_s)
            parts = Reigning(controller, declarations, sessions)
            on_begun(Reign(store, parts, requests, sweep, took_s))
            tasks.create_task(sessions.watch())
            tasks.create_task(declarations.run())
            tasks.create_task(requests.run())
            tasks.create_task(keep_sweeping(sweep))
            tasks.create_task(Reassigner(controller).run())
            if configs.balances_leaders:
                balancer = LeaderBalancer(
                    controller,
                    interval_s=configs.balance_interval_s,
                    imbalance_percentage_max=configs.imbalance_percentage_max,
                )
                tasks.create_task(balancer.run())
    finally:
        await store.close()


async def take_over(client: ZooKeeperClient, store: ZooKeeperStore) -> Controller:
    """Seal and load; wait while ZooKeeper is not reachable. StoreError if that does not help."""
    return await _when_reachable(
        client, lambda: open_controller(store, now_ms=lambda: time.time_ns() // 1_000_000)
    )


async def find_limits(
    client: ZooKeeperClient, store: ZooKeeperStore, settings: CandidateSettings
) -> ClusterLimits:
    """Return the limits of the cluster: no credentials go to a table that everybody may read.

    Tables of this reign get ACLs, those that are there may have been made without. StoreError.
    """
    limits = settings.limits
    if limits.why_no_credentials:
        return limits
    public = await _when_reachable(client, lambda: store.public_tables(SECURITY_TABLE_PREFIX))
    if not public:
        return limits
    problem = (
        f"everybody who reaches ZooKeeper can read {client.access.chroot}{table_path(public[0])}, "
        f"which was made without {SET_ACL}=true: set its ACL, then restart the controller"
    )
    logger.error("users are refused: %s", problem)
    return replace(limits, why_no_credentials=problem)


async def _when_reachable(client: ZooKeeperClient, attempt: Callable[[], Awaitable[T]]) -> T:
    """Return what an attempt returns, and try again while ZooKeeper is not reachable."""
    while True:
        try:
            return await attempt()
        except StoreUnavailableError as error:
            logger.warning("the tables are not taken over yet: %s", error)
        with suppress(SessionLostError):  # The next attempt raises it.
            await client.wait_connected()
        await asyncio.sleep(UNAVAILABLE_RETRY_S)


async def keep_sweeping(sweep: ZnodeSweep) -> None:
    """Restore Kafka's znodes that differ from the tables.

    It compares now and every few minutes, and soon after a write has left some outdated.
    SealedError if another controller has been elected.
    """
    while True:
        with suppress(SessionLostError):  # `Elector.keep` ends the reign.
            await sweep.wait_connected()
        try:
            if mended := await sweep.run():
                logger.warning("put back %d of Kafka's znodes", mended)
        except ZooKeeperError as error:
            logger.warning("Kafka's znodes were not compared with the tables: %s", error)
            sweep.has_lag.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(SWEEP_INTERVAL_S):
                await sweep.has_lag.wait()
        # The same comparison also finds other znodes that are outdated for the same reason.
        await asyncio.sleep(SWEEP_SOON_S)
