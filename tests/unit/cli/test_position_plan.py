"""What `group import` and `group export` plan, without ZooKeeper and without a cluster."""

import pytest

from fairlead_cli.client.groups import GroupDescription, Member
from fairlead_cli.client.places import Place
from fairlead_cli.group.position_moves import MoveChoices, exit_code, plan_move
from fairlead_cli.group.position_plan import OutOfRange, PositionFacts, Step, plan_position
from fairlead_cli.zookeeper.old_groups import OldConsumer, OldGroup
from fairlead_cli.zookeeper.tree import Skipped

PLACE = Place("orders", 0)
REFUSE, CLAMP = OutOfRange.REFUSE, OutOfRange.CLAMP
MEMBER = Member("m-1", None, "app", "127.0.0.1", ())


def facts(source: int, target: int | None = None) -> PositionFacts:
    """A log that holds offsets 10 to 99."""
    return PositionFacts(PLACE, source, target, (10, 100))


@pytest.mark.parametrize(
    ("source", "target", "choice", "step", "new"),
    [
        (50, None, REFUSE, Step.MOVE, 50),
        (10, None, REFUSE, Step.MOVE, 10),
        (100, None, REFUSE, Step.MOVE, 100),
        (50, 40, REFUSE, Step.MOVE, 50),
        (50, 50, REFUSE, Step.KEEP, 50),
        (50, 60, REFUSE, Step.KEEP, 60),
        (9, None, REFUSE, Step.REFUSE, None),
        (101, None, REFUSE, Step.REFUSE, None),
        (9, None, CLAMP, Step.MOVE, 10),
        (101, None, CLAMP, Step.MOVE, 100),
        (101, 60, CLAMP, Step.MOVE, 100),
        # What is there is never taken back, not even into the log.
        (9, 20, CLAMP, Step.KEEP, 20),
        (9, 20, REFUSE, Step.KEEP, 20),
        (500, 100, CLAMP, Step.KEEP, 100),
        (500, 200, CLAMP, Step.KEEP, 200),
    ],
)
def test_a_position_moves_forward_and_into_the_log(
    source: int, target: int | None, choice: OutOfRange, step: Step, new: int | None
) -> None:
    planned = plan_position(facts(source, target), choice)
    assert (planned.step, planned.new) == (step, new)
    assert (planned.note is None) == (source in range(10, 101) and new == source)
    assert planned.lag == (None if new is None else max(0, 100 - new))


def test_a_log_that_nobody_leads_is_refused_whatever_the_choice() -> None:
    for choice in OutOfRange:
        planned = plan_position(PositionFacts(PLACE, 5, None, None), choice)
        assert (planned.step, planned.new) == (Step.REFUSE, None)


def old(*, consumers: tuple[OldConsumer, ...] = (), owner: str = "") -> OldGroup:
    owners = {PLACE: owner} if owner else {}
    return OldGroup("billing", consumers, owners, {PLACE: 50}, {PLACE: 3}, ())


def here(state: str, members: tuple[Member, ...] = ()) -> GroupDescription:
    return GroupDescription("billing", state, "classic", False, "", None, members)


CONSUMER = OldConsumer("billing_c1", "host", ("orders",))


@pytest.mark.parametrize(
    ("group", "found", "said"),
    [
        (old(consumers=(CONSUMER,)), here("Dead"), "consumer billing_c1 on host, reads orders"),
        (old(owner="billing_c1-0"), here("Empty"), "owner billing_c1-0"),
        (old(), here("Stable", (MEMBER,)), "it runs here: Stable, 1 member. Stop"),
        (old(), here("Unknown"), "it runs here: Unknown"),
    ],
)
def test_a_group_that_runs_is_refused_unless_told(
    group: OldGroup, found: GroupDescription, said: str
) -> None:
    refused = plan_move(group, found, [facts(50)], [], MoveChoices(False, REFUSE, False))
    assert refused.refusal is not None
    assert said in f"{refused.refusal}."
    assert exit_code([refused], []) == 1
    told = plan_move(group, found, [facts(50)], [], MoveChoices(False, REFUSE, True))
    assert (told.refusal, exit_code([told], [])) == (None, 0)


def test_a_group_is_refused_as_a_whole() -> None:
    other = PositionFacts(Place("orders", 1), 101, None, (0, 100))
    move = plan_move(old(), here("Dead"), [facts(50), other], [], MoveChoices(True, REFUSE, False))
    assert move.refusal is not None
    assert move.refusal.startswith("1 of 2 positions cannot be moved (orders: 1): 101 is beyond")


def test_the_exit_code_tells_what_somebody_may_miss() -> None:
    choices = MoveChoices(False, REFUSE, False)
    for is_expected, code in ((True, 0), (False, 1)):
        skipped = [Skipped("/consumers/billing/offsets/gone/0", "why", is_expected)]
        move = plan_move(old(), here("Dead"), [facts(50)], skipped, choices)
        assert exit_code([move], []) == code
