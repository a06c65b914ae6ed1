"""What a metadata store in an API server promises when requests fail, as tests.

A test module subclasses the contract, and provides the API server. All requests of the store go
through a proxy with faults. The controller's `Committer` settles unknown outcomes.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from api_fault_proxy import Fault, FaultProxy, is_read, is_write
from watched_store import TABLE, WatchedStore

from fairlead_controller.decisions.tables.security_lines import security_table_name
from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_controller.stores.kubernetes import KubernetesStore, delete_tables
from fairlead_controller.stores.kubernetes_tables import object_name
from fairlead_controller.stores.metadata_store import (
    SealedError,
    StoreUnavailableError,
    TableWrite,
    WriteOutcome,
)
from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_kube.errors import ApiUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from aiohttp import web

CHECK_INTERVAL_S = 0.1
DEADLINE_S = 60.0
PATIENT_S = 10.0
ATTEMPTS = 5
CLUSTER = "demo"


class World(WatchedStore[KubernetesStore]):
    """A store, the proxy before its API server, and a store that avoids the proxy."""

    def __init__(self, proxy: FaultProxy, store: KubernetesStore, witness: KubernetesStore) -> None:
        super().__init__(store, witness)
        self.proxy = proxy

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


class StoreFaultContract(ABC):
    """`backend` provides credentials of an API server and a namespace."""

    request_timeout_s = 0.25
    """Time-out in stories in which some requests get no answer."""

    @abstractmethod
    def backend(self) -> AbstractAsyncContextManager[tuple[Credentials, str]]:
        """Start or find an API server."""

    def run(
        self, story: Callable[[World], Awaitable[None]], *, are_all_answered: bool = False
    ) -> None:
        """Play a story. If all requests are answered or broken off, none reaches its time-out."""
        timeout_s = PATIENT_S if are_all_answered else self.request_timeout_s

        async def play() -> None:
            async with asyncio.timeout(2 * DEADLINE_S), self._world(timeout_s) as world:
                await story(world)

        asyncio.run(play())

    @asynccontextmanager
    async def _world(self, request_timeout_s: float) -> AsyncIterator[World]:
        async with self.backend() as (credentials, namespace):
            proxy = FaultProxy(credentials)
            await proxy.start()
            through = KubeClient(Credentials(proxy.url, None), request_timeout_s=request_timeout_s)
            around = KubeClient(credentials, request_timeout_s=PATIENT_S, connect_timeout_s=5.0)
            store = KubernetesStore(through, namespace, CLUSTER, check_interval_s=CHECK_INTERVAL_S)
            witness = KubernetesStore(around, namespace, CLUSTER)
            try:
                yield World(proxy, store, witness)
            finally:
                await proxy.stop()
                for each, client in ((store, through), (witness, around)):
                    await each.close()
                    await client.close()

    def test_a_conflict_is_a_conflict(self) -> None:
        async def story(world: World) -> None:
            before = await world.put(a="1")
            await world.put(a="2")
            assert await world.write(before.version, a="3") is WriteOutcome.CONFLICT
            assert (await world.table()).lines == {"a": "2"}

        self.run(story, are_all_answered=True)

    @pytest.mark.parametrize(
        "fault",
        [
            {"status": 500},
            {"status": 503},
            {"status": 429, "retry_after_s": 1},
            {"status": 401},
            {"is_cut": True},
            {},
        ],
        ids=str,
    )
    def test_a_write_that_was_not_carried_out_is_sent_again(self, fault: dict[str, Any]) -> None:
        async def story(world: World) -> None:
            before = await world.put(a="1")
            world.proxy.add(Fault(**fault))
            started = time.monotonic()
            assert await world.write(before.version, a="2") is WriteOutcome.WRITTEN
            assert time.monotonic() - started > fault.get("retry_after_s", 0) / 2
            assert (await world.table()).lines == {"a": "2"}
            assert world.store.is_available

        self.run(story, are_all_answered=bool(fault))

    @pytest.mark.parametrize("fault", [{"status": 500}, {"is_cut": True}, {}], ids=str)
    @pytest.mark.parametrize("is_new", [False, True])
    def test_a_landed_write_is_never_called_a_conflict(
        self, fault: dict[str, Any], is_new: bool
    ) -> None:
        async def story(world: World) -> None:
            before = None if is_new else await world.put(a="1")
            version = None if before is None else before.version
            world.proxy.add(Fault(lands=True, **fault))
            assert await world.write(version, a="2") is WriteOutcome.UNKNOWN
            assert (await world.table()).lines == {"a": "2"}

        self.run(story, are_all_answered=bool(fault))

    @pytest.mark.parametrize("fault", [{"status": 500}, {"is_cut": True}, {}], ids=str)
    @pytest.mark.parametrize("is_new", [False, True])
    def test_a_landed_write_is_settled_as_written(
        self, fault: dict[str, Any], is_new: bool
    ) -> None:
        async def story(world: World) -> None:
            committer = world.committer(None if is_new else await world.put(a="1"))
            world.proxy.add(Fault(lands=True, **fault))
            await committer.commit([{TABLE: {"a": "2"}}])
            await committer.commit([{TABLE: {"b": "3"}}])
            assert (await world.table()).lines == {"a": "2", "b": "3"}

        self.run(story, are_all_answered=bool(fault))

    def test_a_write_that_lands_after_it_was_settled_overwrites_nothing(self) -> None:
        async def story(world: World) -> None:
            committer = world.committer(await world.put(a="1"))
            go = asyncio.Event()
            stuck = [world.proxy.add(Fault(lands_late=go)) for _ in range(ATTEMPTS)]
            await committer.commit([{TABLE: {"a": "2"}}])
            await committer.commit([{TABLE: {"a": "3"}}])
            settled = await world.table()
            go.set()
            for fault in stuck:
                await fault.happened.wait()
            assert await world.table() == settled
            assert settled.lines == {"a": "3"}
            await committer.commit([{TABLE: {"a": "4"}}])

        self.run(story)

    def test_a_stuck_write_cannot_land_after_a_newer_one_without_a_difference(self) -> None:
        async def story(world: World) -> None:
            before = await world.put(a="1")
            go = asyncio.Event()
            stuck = [world.proxy.add(Fault(lands_late=go)) for _ in range(ATTEMPTS)]
            assert await world.write(before.version, a="2") is WriteOutcome.UNKNOWN
            assert await world.write(before.version) is WriteOutcome.WRITTEN
            go.set()
            for fault in stuck:
                await fault.happened.wait()
            assert (await world.table()).lines == {"a": "1"}

        self.run(story)

    def test_a_deletion_that_lands_late_takes_nothing_of_the_next_cluster(self) -> None:
        """A new LogCluster of the same name exists, whose controller has created its tables."""
        names = (CLUSTER_TABLE, TABLE, security_table_name(0))

        async def story(world: World) -> None:
            async def make_tables() -> None:
                results = await world.witness.write([TableWrite(name, None, 1) for name in names])
                assert {result.outcome for result in results} == {WriteOutcome.WRITTEN}

            def deletes(name: str) -> Callable[[web.Request], bool]:
                end = f"/{object_name(CLUSTER, name)}"
                return lambda request: request.method == "DELETE" and request.path.endswith(end)

            await make_tables()
            go = asyncio.Event()
            stuck = [world.proxy.add(Fault(matches=deletes(name), lands_late=go)) for name in names]
            client, namespace = world.store._client, world.store._namespace
            for _ in names:
                with pytest.raises(ApiUnavailableError):
                    await delete_tables(client, namespace, CLUSTER)
            assert await delete_tables(client, namespace, CLUSTER) == 1
            await make_tables()
            go.set()
            for fault in stuck:
                await fault.happened.wait()
            assert (await world.witness.load()).keys() == set(names)

        self.run(story)

    def test_without_the_server_metadata_is_frozen_and_nothing_is_lost(self) -> None:
        async def story(world: World) -> None:
            committer = world.committer(await world.put(a="1"))
            moment = time.time()
            await world.proxy.go_away()
            commit = asyncio.create_task(committer.commit([{TABLE: {"a": "2"}}]))
            reading = asyncio.create_task(world.store.read(TABLE))
            await world.until(lambda: not world.store.is_available)
            since = world.store.unavailable_since
            assert since is not None
            assert since >= moment
            assert world.store.problem
            with pytest.raises(StoreUnavailableError):
                await world.store.load()
            await asyncio.wait([commit, reading], timeout=1.0)
            assert not commit.done()
            assert not reading.done()
            assert world.store.unavailable_since == since
            await world.proxy.come_back()
            await commit
            await reading
            assert world.store.is_available
            assert (await world.table()).lines == {"a": "2"}

        self.run(story)

    def test_a_server_that_only_reads_is_not_available(self) -> None:
        async def story(world: World) -> None:
            committer = world.committer(await world.put(a="1"))
            for _ in range(200):
                world.proxy.add(Fault(status=500, reason="InternalError"))
            commit = asyncio.create_task(committer.commit([{TABLE: {"a": "2"}}]))
            await world.until(lambda: not world.store.is_available)
            since = world.store.unavailable_since
            for _ in range(3):
                assert await world.store.read(TABLE) is not None
                assert world.store.unavailable_since == since
            assert not commit.done()
            world.proxy.faults.clear()
            await commit
            assert world.store.is_available
            assert world.store.problem == ""

        self.run(story, are_all_answered=True)

    def test_an_idle_store_notices_that_the_server_is_away(self) -> None:
        async def story(world: World) -> None:
            await world.proxy.go_away()
            await world.until(lambda: not world.store.is_available)
            await world.proxy.come_back()
            await world.until(lambda: world.store.is_available)

        self.run(story)

    def test_a_write_ends_in_bounded_time_and_few_requests(self) -> None:
        async def story(world: World) -> None:
            before = await world.put(a="1")
            for _ in range(20):
                world.proxy.add(Fault(status=500))
            assert await world.write(before.version, a="2") is WriteOutcome.UNKNOWN
            puts = [method for method, _ in world.proxy.requests if method == "PUT"]
            assert len(puts) == ATTEMPTS

        # A request that ran out of time might not be among those counted.
        self.run(story, are_all_answered=True)

    def test_a_table_too_large_for_an_object_is_refused(self) -> None:
        async def story(world: World) -> None:
            before = await world.put(a="1")
            too_large = TableWrite(TABLE, before.version, 1, {"big": '"' * 1_000_000})
            largest = TableWrite(TABLE, before.version, 1, {"big": "x" * 1_000_000})
            with pytest.raises(StoreError, match="lines are too many or too long"):
                await world.store.write([too_large])
            assert (await world.table()).lines == {"a": "1"}
            (result,) = await world.store.write([largest])
            assert result.outcome is WriteOutcome.WRITTEN

        self.run(story, are_all_answered=True)

    def test_after_a_settled_doubt_another_controller_is_still_noticed(self) -> None:
        async def story(world: World) -> None:
            committer = world.committer(await world.put(a="1"))
            for _ in range(ATTEMPTS):
                world.proxy.add(Fault(status=500))
            await world.witness.load()
            await world.witness.seal(2)
            with pytest.raises(SealedError):
                await committer.commit([{TABLE: {"a": "2"}}])
            assert (await world.table()).lines == {"a": "1"}

        self.run(story, are_all_answered=True)

    @pytest.mark.parametrize("seed", range(6))
    def test_whatever_happens_the_table_ends_as_committed(self, seed: int) -> None:
        async def story(world: World) -> None:
            rng = random.Random(seed)
            committer = world.committer(await world.put(n="0"))
            waiting: list[Fault] = []
            expected = {"n": "0"}
            for number in range(1, 12):
                for _ in range(rng.randrange(3)):
                    waiting.append(world.proxy.add(_random_fault(rng)))
                change: dict[str, str | None] = {f"k{rng.randrange(4)}": str(number)}
                await committer.commit([{TABLE: change}])
                expected.update({key: line for key, line in change.items() if line is not None})
                assert (await world.table()).lines == expected
                if rng.random() < 0.5:
                    for fault in waiting:
                        if fault.lands_late is not None:
                            fault.lands_late.set()
            assert (await world.table()).lines == expected

        self.run(story)


def _random_fault(rng: random.Random) -> Fault:
    return rng.choice(
        [
            Fault(status=500),
            Fault(status=503, lands=True),
            Fault(is_cut=True),
            Fault(is_cut=True, lands=True),
            Fault(lands_late=asyncio.Event()),
            Fault(lands=True),
            Fault(matches=is_read, is_cut=True),
            Fault(matches=is_read, status=429),
            Fault(matches=is_write, status=429),
        ]
    )
