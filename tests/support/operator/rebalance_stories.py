"""How a Rebalance begins, proceeds and ends: with a real API server, and with one in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rebalance_bench import complete, until
from topic_bench import eventually

from fairlead_operator.rebalances.steps import FINAL

if TYPE_CHECKING:
    from rebalance_bench import RebalanceBench

MOMENTS: Final = 80
"""More than the moments before and after all writes of a rebalance.

A busy machine has more of them: the progress is written at each look that finds another one.
"""


def planned(bench: RebalanceBench, plan: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return the replicas that the partitions of t will have after the plan."""
    after = {move["partition"]: tuple(move["after"]) for move in plan["moves"]}
    return [after.get(index, old) for index, old in enumerate(bench.world.replicas())]


def on_broker_three(bench: RebalanceBench) -> int:
    return sum(3 in replicas for replicas in bench.world.replicas())


def moves_of(bench: RebalanceBench) -> Any:
    return bench.world.controller.committed.moves


async def nothing_moves_before_the_plan_is_approved(
    bench: RebalanceBench,
) -> None:
    before = bench.world.replicas()
    plan = await bench.propose()
    status = await bench.until("ProposalReady", "AwaitingApproval")
    assert plan["id"] in complete(status)["message"]
    assert (plan["partitions"], plan["leftOut"]) == (len(plan["moves"]), 0)
    (share,) = [each for each in plan["shares"] if each["broker"] == 3]
    assert (share["replicasBefore"], share["replicasAfter"]) == (0, share["arriving"])
    assert share["arriving"] >= 5
    assert [each["goal"] for each in plan["goals"]] == ["racks", "replicas", "leaders"]
    assert "not judged" in plan["notes"][0]
    assert bench.world.replicas() == before
    wanted = planned(bench, plan)
    await bench.patch(approve=plan["id"])
    status = await bench.until("Complete", "Complete")
    assert complete(status)["status"] == "True"
    assert status["progress"] == {
        "done": len(plan["moves"]), "moving": 0, "notMoved": 0, "changedSince": 0,
    }  # fmt: skip
    assert bench.world.replicas() == wanted
    topic = bench.world.image.topic("t")
    assert all(each.leader == each.preferred_leader for each in topic.partitions)
    await bench.until_without_finalizer()
    await bench.create("again")
    await bench.until("Complete", "NothingToMove", name="again")


async def a_plan_that_does_not_fit_any_more_is_not_carried_out(bench: RebalanceBench) -> None:
    old = await bench.propose()
    first = old["moves"][0]
    elsewhere = list(reversed(first["before"]))
    await bench.world.reassign(first["partition"], elsewhere)
    before = bench.world.replicas()
    await bench.patch(approve=old["id"])
    status = await bench.until("ProposalReady", "PlanStale")
    new = status["plan"]
    assert new["id"] != old["id"]
    said = complete(status)["message"]
    assert f"t-{first['partition']} has replicas" in said
    assert new["id"] in said
    assert (bench.world.replicas(), bench.world.is_moving) == (before, False)
    await bench.patch(approve="0123456789ab")
    status = await bench.until("ProposalReady", "OtherPlan")
    assert new["id"] in complete(status)["message"]
    await bench.patch(approve=new["id"])
    await bench.until("Complete", "Complete")


async def a_pause_calls_back_what_waits_and_the_rest_goes_on(bench: RebalanceBench) -> None:
    bench.world.copies = False
    await bench.world.create_topic("many", *([0, 1] for _ in range(80)))
    plan = await bench.propose()
    await bench.patch(approve=plan["id"])
    await until(lambda: bool(moves_of(bench).queued), "some to wait for their turn")
    await bench.patch(paused=True)
    await bench.until("Paused", "Paused")
    await until(lambda: not moves_of(bench).queued, "what waits to be called back")
    assert moves_of(bench).running, "what copies goes on"
    bench.world.copies = True
    await until(lambda: not bench.world.is_moving, "what copies to end")
    await bench.patch(paused=False)
    status = await bench.until("Complete", "Complete")
    assert status["progress"]["done"] == len(plan["moves"])


async def a_cancellation_calls_everything_back(bench: RebalanceBench) -> None:
    bench.world.copies = False
    before = bench.world.replicas()
    plan = await bench.propose()
    await bench.patch(approve=plan["id"])
    await bench.until("Moving", "Moving")
    await until(lambda: on_broker_three(bench) > 0, "the moves to begin")
    await bench.patch(cancel=True)
    status = await bench.until("Cancelled", "Cancelled")
    assert status["progress"]["notMoved"] == len(plan["moves"])
    assert not bench.world.is_moving
    assert list(map(set, bench.world.replicas())) == list(map(set, before))


async def a_deletion_calls_everything_back(bench: RebalanceBench) -> None:
    bench.world.copies = False
    before = bench.world.replicas()
    plan = await bench.propose()
    await bench.patch(approve=plan["id"])
    await bench.until("Moving", "Moving")
    await until(lambda: on_broker_three(bench) > 0, "the moves to begin")
    await bench.delete()
    await bench.until_gone()
    assert not bench.world.is_moving
    assert list(map(set, bench.world.replicas())) == list(map(set, before))


async def one_waits_for_another_by_name(bench: RebalanceBench) -> None:
    bench.world.copies = False
    first, second = await bench.propose("first"), await bench.propose("second")
    assert first["id"] == second["id"], "the same facts, the same plan"
    await bench.patch("first", approve=first["id"])
    await bench.until("Moving", "Moving", name="first")
    await bench.patch("second", approve=second["id"])
    status = await bench.until("ProposalReady", "AnotherRebalance", name="second")
    assert "rebalance first" in complete(status)["message"]
    await bench.create("third")
    await bench.until("Pending", "AnotherRebalance", name="third")
    bench.world.copies = True
    await bench.until("Complete", name="first")
    status = await bench.until("Complete", "NothingToMove", name="third")
    await bench.until("Complete", "NothingToMove", name="second")


async def what_others_do_on_the_way_is_counted_and_left_alone(bench: RebalanceBench) -> None:
    await bench.world.create_topic("goes", *([0, 1] for _ in range(6)))
    bench.world.copies = False
    plan = await bench.propose()
    assert {move["topic"] for move in plan["moves"]} == {"t", "goes"}
    await bench.patch(approve=plan["id"])
    await bench.until("Moving", "Moving")
    mine = [move for move in plan["moves"] if move["topic"] == "t" and 3 in move["after"]]
    await until(lambda: on_broker_three(bench) > 0, "the moves to begin")
    await bench.world.reassign(mine[0]["partition"], list(mine[0]["before"]))
    await bench.world.reassign(mine[1]["partition"], [0, 1, 2])
    await bench.world.delete_topic("goes")
    bench.world.copies = True
    status = await bench.until("Failed", "NotMoved")
    gone = sum(move["topic"] == "goes" for move in plan["moves"])
    assert status["progress"]["changedSince"] == gone + 1
    assert status["progress"]["notMoved"] == 1
    assert len(bench.world.replicas()[mine[1]["partition"]]) == 3, "its owner's wish stands"
    failed = {each["type"]: each["status"] for each in status["conditions"]}
    assert (failed["Failed"], failed["Complete"]) == ("True", "False")


async def a_silent_controller_is_waited_for(bench: RebalanceBench) -> None:
    bench.world.is_silent = True
    await bench.create()
    await bench.until("Pending", "ControllerUnavailable")
    bench.world.is_silent = False
    plan = (await bench.until("ProposalReady"))["plan"]
    bench.world.copies = False
    await bench.patch(approve=plan["id"])
    await until(lambda: bench.world.is_moving, "the first moves")
    bench.world.is_silent = True
    await bench.until("Moving", "ControllerUnavailable")
    bench.world.copies = True
    bench.world.is_silent = False
    await bench.until("Complete", "Complete")


async def an_operator_that_dies_is_followed_by_one_that_goes_on(
    bench: RebalanceBench,
) -> None:
    await bench.stop_operator()
    for moment in range(MOMENTS):
        topic, name = f"t{moment}", f"even{moment}"
        await bench.world.create_topic(topic, *([0, 1] for _ in range(4)))
        await bench.start_operator(dies_after=moment)
        await bench.create(name)
        died = await approve_or_die(bench, name)
        if died:
            await bench.stop_operator()
            await bench.start_operator()
            await approve_or_die(bench, name)
        status = await bench.until("Complete", "Complete", name=name)
        moves = status["plan"]["moves"]
        assert status["progress"]["done"] == len(moves)
        for move in moves:
            record = bench.world.image.partition(move["topic"], move["partition"])
            assert list(record.replicas) == move["after"]
        await bench.until_without_finalizer(name)
        await bench.stop_operator()
        if not died:
            assert moment > 10, "it has died often enough"
            return
    raise AssertionError(f"a rebalance has more than {MOMENTS} moments to die in")


async def one_that_dies_while_it_cancels_leaves_nothing_moving(bench: RebalanceBench) -> None:
    await bench.stop_operator()
    bench.world.copies = False
    before = bench.world.replicas()
    for moment in range(MOMENTS):
        name = f"even{moment}"
        await bench.start_operator()
        plan = await bench.propose(name)
        await bench.patch(name, approve=plan["id"])
        await until(lambda: bench.world.is_moving, "the first moves")
        await bench.stop_operator()
        await bench.patch(name, cancel=True)
        await bench.start_operator(dies_after=moment)
        died = await approve_or_die(bench, name)
        if died:
            await bench.stop_operator()
            await bench.start_operator()
        await bench.until("Cancelled", "Cancelled", name=name)
        await bench.until_without_finalizer(name)
        await bench.stop_operator()
        assert not bench.world.is_moving
        assert list(map(set, bench.world.replicas())) == list(map(set, before))
        if not died:
            assert moment > 5, "it has died often enough"
            return
    raise AssertionError(f"a cancellation has more than {MOMENTS} moments to die in")


async def a_plan_of_what_brokers_told_says_how_much_is_copied(bench: RebalanceBench) -> None:
    bench.loads.size = 1 << 30
    plan = await bench.propose()
    assert plan["isMeasured"]
    assert plan["notes"] == []
    assert plan["bytes"] == sum(move["bytes"] for move in plan["moves"])
    assert plan["bytesNeeded"] <= plan["bytes"] <= 1.3 * plan["bytesNeeded"]
    assert plan["durationSeconds"] >= plan["bytes"] // 3 // plan["bytesPerSecond"]
    disks = {each["goal"]: each for each in plan["goals"]}["disks"]
    assert disks["after"] < disks["before"]
    (share,) = [each for each in plan["shares"] if each["broker"] == 3]
    assert (share["bytesBefore"], share["bytesAfter"]) == (0, share["arriving"] << 30)


async def a_new_broker_is_filled_by_the_mode_auto(bench: RebalanceBench) -> None:
    await bench.create(mode="Auto")
    await bench.until("Watching", "NotMeasured")
    assert on_broker_three(bench) == 0
    await bench.delete()
    await bench.until_gone()
    bench.loads.size = 1 << 30
    await bench.create(mode="Auto")
    status = await bench.until("Watching", "RoundComplete")
    assert on_broker_three(bench) >= 5
    auto, moves = status["auto"], status["plan"]["moves"]
    assert (auto["rounds"], auto["failedRounds"]) == (1, 0)
    assert auto["lastRound"]["why"] == "broker 3 holds nothing"
    assert auto["lastRound"]["done"] == len(auto["resting"]) == len(moves)
    await bench.until_without_finalizer()
    await bench.create("later", mode="Auto")
    status = await bench.until("Watching", "AnotherAutomatic", name="later")
    assert "rebalance even" in complete(status)["message"]
    await bench.patch(cancel=True)
    await bench.until("Cancelled", "Cancelled")
    await bench.until("Watching", "Even", name="later")


async def whatever_disturbs_the_cluster_pauses_a_round(bench: RebalanceBench) -> None:
    bench.loads.size = 1 << 20
    bench.world.copies = False
    await bench.world.create_topic("many", *([0, 1] for _ in range(80)))
    await bench.create(mode="Auto")
    await until(lambda: bool(moves_of(bench).queued), "some to wait for their turn")
    # A rolling restart restarts brokers, a round lets them copy: the restart has priority.
    await bench.set_progressing("True")
    await bench.until("Paused", "ClusterChanging")
    await until(lambda: not moves_of(bench).queued, "what waits to be called back")
    assert moves_of(bench).running, "what copies goes on"
    await bench.set_progressing("False")
    await until(lambda: bool(moves_of(bench).queued), "the round to go on")
    await bench.begin_drill("game-day")
    status = await bench.until("Paused", "DrillRunning")
    assert "drill game-day" in complete(status)["message"]
    await bench.end_drill("game-day")
    bench.world.copies = True
    status = await bench.until("Watching", "RoundComplete")
    assert status["progress"]["done"] == len(status["plan"]["moves"])


async def a_round_of_which_everything_is_called_back_is_not_begun_at_once_again(
    bench: RebalanceBench,
) -> None:
    bench.loads.size = 1 << 30
    bench.world.copies = False
    before = bench.world.replicas()
    await bench.create(mode="Auto")
    await bench.until("Moving", "Moving")
    plan = (await bench.until("Moving", "Moving"))["plan"]

    async def are_ordered() -> bool:
        """The status is written before the moves are."""
        return bench.world.moving == len(plan["moves"])

    await eventually(are_ordered, lambda: "all moves of the plan to be ordered")
    for move in plan["moves"]:
        await bench.world.reassign(move["partition"], None)
    status = await bench.until("Watching", "RoundFailed")
    assert status["auto"]["failedRounds"] == 1
    assert status["progress"]["notMoved"] == len(plan["moves"])
    assert list(map(set, bench.world.replicas())) == list(map(set, before))
    assert len(status["auto"]["resting"]) == len(plan["moves"])


async def a_plan_goes_on_while_a_roll_goes_on_and_none_begins(bench: RebalanceBench) -> None:
    bench.world.copies = False
    plan = await bench.propose()
    await bench.set_progressing("True")
    await bench.patch(approve=plan["id"])
    await bench.until("ProposalReady", "ClusterChanging")
    assert not bench.world.is_moving
    await bench.set_progressing("False")
    await bench.until("Moving", "Moving")
    await bench.set_progressing("True")
    bench.world.copies = True
    await bench.until("Complete", "Complete")


async def a_drain_keeps_the_mode_auto_quiet(bench: RebalanceBench) -> None:
    bench.loads.size = 1 << 30
    bench.world.copies = False
    await bench.world.drain(0)
    await bench.create(mode="Auto")
    status = await bench.until("Watching", "DrainUnderWay")
    assert status["auto"]["disturbedAt"]
    assert status["auto"].get("rounds", 0) == 0


async def an_operator_that_dies_in_a_round_is_followed_by_one_that_ends_it(
    bench: RebalanceBench,
) -> None:
    await bench.stop_operator()
    bench.loads.size = 1 << 30
    for moment in range(MOMENTS):
        topic, name = f"t{moment}", f"even{moment}"
        # So many partitions on two brokers that each time a round is necessary.
        await bench.world.create_topic(topic, *([0, 1] for _ in range(24)))
        await bench.start_operator(dies_after=moment)
        await bench.create(name, mode="Auto")
        died = await until_round_or_death(bench, name)
        if died:
            await bench.stop_operator()
            await bench.start_operator()
        status = await until_round(bench, name)
        assert status["auto"]["rounds"] == 1, "one round, whoever ended it"
        assert status["auto"]["lastRound"]["outcome"] == "Complete"
        assert not bench.world.is_moving
        await bench.until_without_finalizer(name)
        await bench.delete(name)
        await bench.until_gone(name)
        await bench.stop_operator()
        await bench.world.delete_topic(topic)
        if not died:
            assert moment > 10, "it has died often enough"
            return
    raise AssertionError(f"a round has more than {MOMENTS} moments to die in")


async def until_round(bench: RebalanceBench, name: str) -> dict[str, Any]:
    """Wait for the end of a round; return the status.

    An operator that has begun in the middle of it looks again at once, and then Complete has
    another reason.
    """

    async def has_ended() -> dict[str, Any] | None:
        status = ((await bench.get(name)) or {}).get("status") or {}
        is_over = status.get("phase") == "Watching" and (status.get("auto") or {}).get("rounds")
        return status if is_over else None

    return await eventually(has_ended, lambda: f"{name} to end a round")


async def until_round_or_death(bench: RebalanceBench, name: str) -> bool:
    """Wait for the end of a round; tell whether the operator died before it."""

    async def is_over() -> bool:
        item = await bench.get(name)
        assert item is not None
        has_ended = ((item.get("status") or {}).get("auto") or {}).get("rounds")
        return bench.is_operator_dead or bool(has_ended and not item["metadata"].get("finalizers"))

    await eventually(is_over, lambda: f"{name} to end a round, or its operator to die")
    return bench.is_operator_dead


async def approve_or_die(bench: RebalanceBench, name: str) -> bool:
    """Approve the plan once it is there, and wait for the end; tell whether the operator died."""
    is_approved = False

    async def is_over() -> bool:
        nonlocal is_approved
        item = await bench.get(name)
        assert item is not None
        status = item.get("status") or {}
        if status.get("phase") == "ProposalReady" and not is_approved:
            await bench.patch(name, approve=status["plan"]["id"])
            is_approved = True
        has_ended = status.get("phase") in FINAL and not item["metadata"].get("finalizers")
        return bench.is_operator_dead or has_ended

    await eventually(is_over, lambda: f"{name} to end, or its operator to die")
    return bench.is_operator_dead


STORIES: Final = (
    nothing_moves_before_the_plan_is_approved,
    a_plan_that_does_not_fit_any_more_is_not_carried_out,
    a_pause_calls_back_what_waits_and_the_rest_goes_on,
    a_cancellation_calls_everything_back,
    a_deletion_calls_everything_back,
    one_waits_for_another_by_name,
    what_others_do_on_the_way_is_counted_and_left_alone,
    a_silent_controller_is_waited_for,
    an_operator_that_dies_is_followed_by_one_that_goes_on,
    one_that_dies_while_it_cancels_leaves_nothing_moving,
    a_plan_of_what_brokers_told_says_how_much_is_copied,
    a_plan_goes_on_while_a_roll_goes_on_and_none_begins,
    a_new_broker_is_filled_by_the_mode_auto,
    whatever_disturbs_the_cluster_pauses_a_round,
    a_round_of_which_everything_is_called_back_is_not_begun_at_once_again,
    a_drain_keeps_the_mode_auto_quiet,
    an_operator_that_dies_in_a_round_is_followed_by_one_that_ends_it,
)
