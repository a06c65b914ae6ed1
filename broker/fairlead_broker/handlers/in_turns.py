"""Answers that tell of very many things: others get their turn of the loop between."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fairlead_broker.coordinator.slicing import in_slices
from fairlead_broker.limits import DESCRIBED_A_TURN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.clock import Clock

_Answer = TypeVar("_Answer")


def in_turns(
    context: RequestContext, steps: Iterator[None], count: int, build: Callable[[], _Answer]
) -> _Answer | Pending:
    """Take the steps and answer; others get their turn between if they tell of very many."""
    if count > DESCRIBED_A_TURN:
        return context.later(_later(steps, build, context.broker.clock))
    for _ in steps:
        pass
    return build()


async def _later(steps: Iterator[None], build: Callable[[], _Answer], clock: Clock) -> _Answer:
    await in_slices(steps, clock)
    return build()
