"""When clusters are reconciled, and that it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead_operator.clusters.reconcile_loop import ReconcileLoop
from fairlead_operator.metrics import OperatorMetrics

KEY = ("shop", "demo")
END_S = 10.0


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
