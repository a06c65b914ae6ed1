"""Disks that are full for a while: no record is lost, and no restart is necessary."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from simulator.world import Options, SimulationFailed, World, run_seed

from fairlead_broker.tasks.room_watch import RoomWatch
from fairlead_controller.decisions.observations import ReplicasFull, _Edits

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(6)
MUTANT_SEEDS = range(30)
NEW_LEADER_S = 1.0
RECORDS_S = 3.0
"""Time for twenty records of each partition that the broker with the full disk led."""
OTHERS = ("kill", "cut_link", "pause", "kill_controller", "elect_preferred", "lose_power")


def options(*others: str) -> Options:
    return Options(
        only=("fill_disk", *others),
        is_violent=False,
        is_compacting=False,
        has_meddlers=False,
        fault_pause_s=0.8,
    )


@pytest.mark.parametrize("others", [(), OTHERS], ids=["alone", "among others"])
def test_full_disks_lose_nothing_and_heal(others: tuple[str, ...]) -> None:
    counts = [run_seed(seed, options(*others)).faults.get("disk full", 0) for seed in SEEDS]
    assert sum(counts) > len(SEEDS)


def test_records_are_taken_while_one_disk_is_full() -> None:
    """All that the broker with the full disk leads gets other leaders within a second."""

    async def story(world: World) -> None:
        await world.progress(0)
        full = world.leader(0)
        led = [index for index in (0, 1) if world.leader(index) is full]
        full.fill_disk()
        began_s = world.loop.time()
        for index in led:
            await world.until(lambda: world.record(index).leader not in (-1, full.broker_id))  # noqa: B023
        assert world.loop.time() - began_s < NEW_LEADER_S
        for index in led:
            await world.progress(index, count=20)
        assert world.loop.time() - began_s < RECORDS_S
        assert full.disk.is_full
        full.empty_disk()
        await world.until(lambda: full.broker_id in world.record(0).isr)

    for seed in SEEDS:
        world = World(seed, replace(options(), brokers=3, has_transactions=False, script=story))
        world.produce_rate = 12.0
        world.run()


def never_looks_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RoomWatch, "_look", lambda _: False)


def remembers_for_ever_who_was_full(patch: pytest.MonkeyPatch) -> None:
    take = _Edits.take

    def forgetful(self: Any, report: Any) -> None:
        if not isinstance(report, ReplicasFull) or report.replicas:
            take(self, report)

    patch.setattr(_Edits, "take", forgetful)


@pytest.mark.parametrize("change", [never_looks_again, remembers_for_ever_who_was_full])
def test_a_broken_rule_is_caught(
    change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    with pytest.raises(SimulationFailed):
        for seed in MUTANT_SEEDS:
            World(seed, options()).run()
