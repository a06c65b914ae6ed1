"""Which brokers a LogCluster has fenced, and which it lets back."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead_operator.clusters.fencing import (
    OWN_REASON,
    FenceOrder,
    FenceReport,
    decide_fences,
    describe_fences,
)


def broker(broker_id: int, reason: str | None = None) -> dict[str, Any]:
    return {"id": broker_id, "fencedBy": reason}


@pytest.mark.parametrize(
    ("wanted", "brokers", "orders"),
    [
        ((), [broker(0), broker(1)], ()),
        ((1,), [broker(0), broker(1)], (FenceOrder(1, True),)),
        ((1,), [broker(0), broker(1, OWN_REASON)], ()),
        ((), [broker(0), broker(1, OWN_REASON)], (FenceOrder(1, False),)),
        # What a person has ordered stays, whether the LogCluster names it or not.
        ((), [broker(1, "by hand")], ()),
        ((1,), [broker(1, "by hand")], ()),
        ((7,), [broker(1)], ()),
        # The one that is let back first: then the other one may be fenced.
        ((1,), [broker(1), broker(0, OWN_REASON)], (FenceOrder(0, False), FenceOrder(1, True))),
    ],
)
def test_only_what_differs_is_ordered(
    wanted: tuple[int, ...], brokers: list[dict[str, Any]], orders: tuple[FenceOrder, ...]
) -> None:
    assert decide_fences(wanted, brokers) == orders


def test_what_is_said() -> None:
    assert describe_fences(FenceReport()) is None
    assert describe_fences(FenceReport(fenced=(1, 3))) == (
        True,
        "AskedFor",
        "brokers 1, 3 are out of service",
    )
    refused = FenceReport(fenced=(1,), problems=("broker 2: t-0 needs it",))
    assert describe_fences(refused) == (False, "FenceRefused", "broker 2: t-0 needs it")
