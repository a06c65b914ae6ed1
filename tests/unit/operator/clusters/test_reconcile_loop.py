"""When clusters are reconciled, and that it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

from fairlead_operator.clusters import reconcile_loop
from fairlead_operator.clusters.reconcile_loop import ReconcileLoop
from fairlead_operator.metrics import OperatorMetrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

KEY = ("shop", "demo")
END_S = 60.0


class Reconciler:
    def __init__(self) -> None:
        self.passes = asyncio.Queue[None]()

    async def reconcile(self, _: Any) -> float | None:
        self.passes.put_nowait(None)
        return 60.0


@pytest.mark.parametrize("is_changing", [False, True])
def test_it_ends_although_a_change_comes_at_the_same_time(is_changing: bool) -> None:
    async def story() -> None:
        loop, reconciler = ReconcileLoop(OperatorMetrics()), Reconciler()
        loop.request(KEY)
        running = asyncio.create_task(loop.run(reconciler))  # type: ignore[arg-type]
        await reconciler.passes.get()
        await asyncio.sleep(0)  # It waits for a change now.
        await asyncio.sleep(0)
        if is_changing:
            loop.request(KEY)
            await asyncio.sleep(0)
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=END_S)
        assert done, "it goes on"
        assert reconciler.passes.empty()

    asyncio.run(story())


def test_a_cluster_that_waits_for_nothing_has_no_task_until_it_changes() -> None:
    class Gone(Reconciler):
        async def reconcile(self, key: Any) -> float | None:
            if self.passes.empty():
                loop.request(key)  # A change during the first pass is not missed.
            await super().reconcile(key)
            return None

    loop, reconciler = ReconcileLoop(OperatorMetrics()), Gone()

    def tasks() -> list[str]:
        return [each.get_name() for each in asyncio.all_tasks() if "reconcile" in each.get_name()]

    async def story() -> None:
        names = [f"c{number}" for number in range(3)]
        for name in names:
            loop.request(("shop", name))
        running = asyncio.create_task(loop.run(reconciler))  # type: ignore[arg-type]
        await until(lambda: reconciler.passes.qsize() == 4 and not tasks())
        loop.request(("shop", "c0"))
        await until(lambda: reconciler.passes.qsize() == 5 and not tasks())
        assert not loop._wakes
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=END_S)
        assert done, "it goes on"

    asyncio.run(story())


class TroubledReconciler(Reconciler):
    """Its first pass does not end in order."""

    def __init__(self, trouble: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._trouble: Callable[[], Awaitable[None]] | None = trouble

    async def reconcile(self, key: Any) -> float | None:
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            await trouble()
        return await super().reconcile(key)


async def wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def wait_for_what_is_cancelled() -> None:
    answer = asyncio.get_running_loop().create_future()
    answer.cancel()
    await answer


async def end_the_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@pytest.mark.parametrize("trouble", [wait_for_ever, wait_for_what_is_cancelled, end_the_task])
def test_a_pass_that_does_not_end_in_order_is_repeated(
    trouble: Callable[[], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reconcile_loop, "PASS_S_MAX", 0.1)
    monkeypatch.setattr(reconcile_loop, "BACKOFF_S_MIN", 0.01)

    async def story() -> None:
        loop, reconciler = ReconcileLoop(OperatorMetrics()), TroubledReconciler(trouble)
        loop.request(KEY)
        running = asyncio.create_task(loop.run(reconciler))  # type: ignore[arg-type]
        await asyncio.wait_for(reconciler.passes.get(), END_S)
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=END_S)
        assert done, "it goes on"

    asyncio.run(story())
    # The log says where it waited.
    assert trouble.__name__ in caplog.text


def test_a_task_that_ends_between_passes_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        loop, reconciler = ReconcileLoop(OperatorMetrics()), Reconciler()
        loop.request(KEY)
        running = asyncio.create_task(loop.run(reconciler))  # type: ignore[arg-type]
        await reconciler.passes.get()
        (task,) = (each for each in asyncio.all_tasks() if each.get_name() == "reconcile shop/demo")
        task.cancel()
        await asyncio.wait_for(reconciler.passes.get(), END_S)
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=END_S)
        assert done, "it goes on"

    asyncio.run(story())
    assert "shop/demo: its reconciliation ended; it begins anew" in caplog.text
