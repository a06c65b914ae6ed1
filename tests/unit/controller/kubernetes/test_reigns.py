"""The reigns of one candidate, against an API server in memory: what befalls one is its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from reigning_candidate import NAMESPACE, SECRET, Candidate, play

from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.kubernetes.reign import Reign
from fairlead_controller.stores.metadata_store import SealedError
from fairlead_kube.kinds import CLUSTER_STATE
from fairlead_model.session.refusals import RefusalCode, RefusedError

KEY = (NAMESPACE, "a")


def test_a_label_on_a_table_ends_that_clusters_reign_alone() -> None:
    async def story(candidate: Candidate) -> None:
        before = await candidate.reigning("a"), await candidate.reigning("b")
        other = candidate.reign("b").parts
        await candidate.touch(CLUSTER_STATE, "a")
        try:
            await candidate.decide("a")
            raise AssertionError("a decision on a table that somebody else has changed")
        except RefusedError:
            pass
        assert await candidate.reigning("a", after=before[0]) > before[0]
        assert candidate.confirmations == 1, "the Lease says whether this process has been deposed"
        assert candidate.reign("a").interruptions == 1
        assert "changed by somebody else" in candidate.reign("a").last_interruption
        await candidate.decide("a")
        assert candidate.reign("b").parts is other, "it has not noticed"
        assert candidate.reign("b").controller_epoch == before[1]
        await candidate.decide("b")

    play(story, "a", "b")


def test_a_table_that_another_controller_has_sealed_costs_no_other_cluster_its_reign() -> None:
    async def story(candidate: Candidate) -> None:
        before = await candidate.reigning("a"), await candidate.reigning("b")
        found = candidate.objects(CLUSTER_STATE)["a"]
        sealed = {**found, "spec": {**found["spec"], "controllerEpoch": before[0] + 5}}
        await candidate.client.replace(CLUSTER_STATE, NAMESPACE, "a", sealed)
        try:
            await candidate.decide("a")
            raise AssertionError("a decision of a deposed controller")
        except RefusedError:
            pass
        assert await candidate.reigning("a", after=before[0] + 5)
        assert candidate.confirmations == 1
        assert candidate.reign("b").controller_epoch == before[1]
        await candidate.decide("b")

    play(story, "a", "b")


def test_a_reign_that_is_ended_while_it_fails_ends() -> None:
    class Failing(Reign):
        async def _reign(self) -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(slow_to_end())
                await asyncio.sleep(0)
                raise StoreError("the tables are gone")

    ending = asyncio.Event()
    unused: Any = None

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ending.set()
            await asyncio.sleep(0.01)

    async def story(candidate: Candidate) -> None:
        await candidate.reigning("a")
        running = asyncio.create_task(Failing(KEY, candidate.reign("a").spec, unused).run())
        await ending.wait()
        running.cancel()
        await asyncio.wait([running], timeout=5)
        assert running.cancelled()

    play(story, "a")


def test_a_reign_that_is_ended_while_it_asks_for_the_lease_ends() -> None:
    """Python 3.11.2, as of Debian, put the cancellation into a group, so it was an error."""

    class Interrupted(Reign):
        async def _reign(self) -> None:
            async with asyncio.TaskGroup():
                raise SealedError("another controller has them")

    asking = asyncio.Event()

    async def never_answers() -> None:
        asking.set()
        await asyncio.sleep(3600)

    async def story(candidate: Candidate) -> None:
        await candidate.reigning("a")
        around = replace(candidate.surroundings, confirm_lease=never_answers)
        running = asyncio.create_task(Interrupted(KEY, candidate.reign("a").spec, around).run())
        await asking.wait()
        running.cancel()
        await asyncio.wait([running], timeout=5)
        assert running.cancelled()

    play(story, "a")


def test_a_defect_beside_the_end_of_a_reign_is_told_last() -> None:
    class Failing(Reign):
        async def _reign(self) -> None:
            stopped = RefusedError(RefusalCode.REQUEST_TIMED_OUT, "stopped")
            raise ExceptionGroup("", [stopped, StoreError("gone"), KeyError(1)])

    unused: Any = None

    async def story(candidate: Candidate) -> None:
        await candidate.reigning("a")
        reign = Failing(KEY, candidate.reign("a").spec, unused)
        running = asyncio.create_task(reign.run())
        await candidate.until(lambda: reign.problem == "an error of this controller: KeyError(1)")
        running.cancel()
        await asyncio.wait([running], timeout=5)
        assert running.cancelled()

    play(story, "a")


def test_what_a_log_cluster_says_while_its_tables_are_taken_over_holds() -> None:
    async def story(candidate: Candidate) -> None:
        candidate.secret = None
        await candidate.until(lambda: KEY in candidate.reigns.by_key)
        reign = candidate.reign("a")
        await candidate.until(lambda: "session Secret" in reign.problem)
        asleep = replace(reign.spec, limits=replace(reign.spec.limits, withholds_unclean=True))
        reign.update(asleep)
        candidate.secret = SECRET
        await candidate.reigning("a")
        parts = reign.parts
        assert parts is not None
        await candidate.until(lambda: parts.controller.committed.limits.withholds_unclean)

    play(story, "a")
