"""Partitions that a client may have made and removed a second (KIP-599)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from decision_world import reply_of

from fairlead_controller.decisions.decide import decide
from fairlead_controller.decisions.events import (
    AlterClientQuotas,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    QuotaChanges,
)
from fairlead_controller.decisions.security import mutation_quota
from fairlead_controller.decisions.security.mutation_quota import MutationQuotas
from fairlead_model.cluster import ClientQuotaChanged, ClusterImage
from fairlead_model.security.client_quota import THROTTLE_MS_MAX
from fairlead_model.session.refusals import RefusalCode, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from decision_world import World

    from fairlead_model.session.calls import CreatableTopic

RATE = 2.0
ALICE = (("user", "alice"),)
BURST_S = 11


def image(rate: float = RATE) -> ClusterImage:
    alice = ClientQuotaChanged(ALICE, {"controller_mutation_rate": rate})
    anybody = ClientQuotaChanged((("client-id", None),), {"controller_mutation_rate": rate})
    return ClusterImage().apply([alice, anybody])


def asker(user: str = "alice", client_id: str = "c", *, is_strict: bool = True) -> dict[Any, Any]:
    return {"user": user, "client_id": client_id, "is_strict": is_strict, "burst_s": BURST_S}


def deletion(who: Any) -> DeleteTopics:
    return DeleteTopics({"topics": [], "asker": who})


def charge(
    quotas: MutationQuotas, partitions: int, now_ms: int, *, rate: float = RATE, **who: Any
) -> tuple[bool, Any]:
    """Return whether it was refused, and how long to wait."""
    allowance = quotas.allowance(image(rate), deletion(asker(**who)), now_ms)
    assert allowance is not None
    try:
        allowance.charge(partitions)
    except RefusedError as refusal:
        assert refusal.code is RefusalCode.THROTTLING_QUOTA_EXCEEDED
        return True, allowance.throttle_time_ms
    return False, allowance.throttle_time_ms


def test_one_request_may_overdraw_and_the_next_waits_until_the_debt_is_paid() -> None:
    quotas = MutationQuotas()
    assert charge(quotas, 32, 0) == (False, 0)  # 22 tokens less 32
    assert charge(quotas, 1, 0) == (True, 5000)
    assert charge(quotas, 1, 4000) == (True, 1000)
    assert charge(quotas, 1, 5000) == (False, 0)


@pytest.mark.parametrize("rate", [1e-4, 1e-320])
@pytest.mark.parametrize("is_strict", [True, False])
def test_nobody_is_told_to_wait_for_longer_than_an_answer_can_say(
    rate: float, is_strict: bool
) -> None:
    quotas = MutationQuotas()
    charge(quotas, 30_000, 0, rate=rate, is_strict=is_strict)
    assert charge(quotas, 1, 0, rate=rate, is_strict=is_strict) == (is_strict, THROTTLE_MS_MAX)
    # The debt is all there afterwards.
    again = charge(quotas, 1, THROTTLE_MS_MAX, rate=rate, is_strict=is_strict)
    assert again == (is_strict, THROTTLE_MS_MAX)


def test_old_clients_are_never_refused_but_wait() -> None:
    quotas = MutationQuotas()
    assert charge(quotas, 22, 0, is_strict=False) == (False, 0)
    assert charge(quotas, 4, 0, is_strict=False) == (False, 2000)
    assert charge(quotas, 2, 0, is_strict=False) == (False, 3000)


def test_a_bucket_never_holds_more_than_all_windows_give() -> None:
    quotas = MutationQuotas()
    charge(quotas, 1, 0)
    assert charge(quotas, 23, 10_000_000) == (False, 0)
    assert charge(quotas, 1, 10_000_000) == (True, 500)


def test_who_shares_a_quota_shares_its_bucket() -> None:
    quotas = MutationQuotas()
    charge(quotas, 24, 0, client_id="one")
    assert charge(quotas, 1, 0, client_id="two") == (True, 1000)
    assert charge(quotas, 1, 0, user="bob", client_id="one") == (False, 0)


def test_another_rate_holds_at_once_and_time_that_goes_back_gives_nothing() -> None:
    quotas = MutationQuotas()
    charge(quotas, 26, 1000)
    assert charge(quotas, 1, 1000, rate=8.0) == (True, 500)
    assert charge(quotas, 1, 0, rate=8.0) == (True, 500)
    assert charge(quotas, 1, 500, rate=8.0) == (False, 0)


def test_without_a_quota_nobody_is_limited_and_nothing_is_kept() -> None:
    quotas = MutationQuotas()
    assert quotas.allowance(ClusterImage(), deletion(asker()), 0) is None
    assert quotas.allowance(image(), deletion(None), 0) is None
    assert quotas.allowance(image(), ElectLeaders(), 0) is None


def test_of_too_many_buckets_one_in_debt_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation_quota, "BUCKETS_MAX", 3)
    quotas = MutationQuotas()
    charge(quotas, 40, 0, user="u", client_id="debtor")
    for number in range(20):
        charge(quotas, 1, 0, user="u", client_id=f"c{number}")
    assert charge(quotas, 1, 0, user="u", client_id="debtor")[0]


@pytest.mark.parametrize("is_strict", [True, False])
def test_decisions_charge_what_they_change_and_tell_how_long_to_wait(
    make_world: Callable[..., World],
    make_topic: Callable[..., CreatableTopic],
    make_create: Callable[..., CreateTopics],
    is_strict: bool,
) -> None:
    world = make_world(1)
    rate = {"controller_mutation_rate": RATE}
    world.do(AlterClientQuotas((QuotaChanges(ALICE, tuple(rate.items())),), False, "User:admin"))
    quotas = MutationQuotas()

    def ask(event: CreateTopics | CreatePartitions | DeleteTopics) -> tuple[list[Any], Any]:
        event.call["asker"] = cast("Any", asker(is_strict=is_strict))
        allowance = quotas.allowance(world.state.image, event, 0)
        decision = decide(world.state, event, now_ms=0, random=world.random, allowance=allowance)
        world.state = world.state.apply(decision.changes)
        codes = [topic["error_code"] for topic in reply_of(decision)["topics"]]
        return codes, reply_of(decision)["throttle_time_ms"]

    creation = make_create(make_topic("a", partitions=24), make_topic("b", partitions=1))
    growth = CreatePartitions(
        {"topics": [{"name": "a", "count": 26, "assignments": None}], "validate_only": True}
    )
    deleting = DeleteTopics({"topics": [{"name": "a", "topic_id": bytes(16)}]})
    if is_strict:
        assert ask(creation) == ([0, 89], 1000)
        assert ask(growth) == ([89], 1000)
        assert ask(deleting) == ([89], 1000)
        assert {topic.name for topic in world.state.image.topics()} == {"a"}
    else:
        assert ask(creation) == ([0, 0], 1500)
        assert ask(growth) == ([0], 2500)
        assert ask(deleting) == ([0], 14_500)
        assert {topic.name for topic in world.state.image.topics()} == {"b"}
