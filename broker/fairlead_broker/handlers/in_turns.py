"""Large answers in slices: other work gets its turn of the loop between them.

Both to make such an answer and to encode it takes long.
"""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fairlead_broker.coordinator.slicing import in_slices
from fairlead_broker.handlers.long_answer import LongAnswer, is_long
from fairlead_broker.limits import DESCRIBED_A_TURN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.clock import Clock

_Answer = TypeVar("_Answer")
_Item = TypeVar("_Item")
_ITEMS_PER_STEP: Final = 200


def in_turns(
    context: RequestContext, steps: Iterator[None], count: int, build: Callable[[], _Answer]
) -> _Answer | Pending:
    """Take the steps and answer; other work gets its turn between many of them."""
    if count > DESCRIBED_A_TURN:
        return context.later(_later(steps, build, context.broker.clock, context.version))
    for _ in steps:
        pass
    return build()


def in_counted_turns(
    context: RequestContext, steps: Iterator[int], build: Callable[[], _Answer]
) -> _Answer | Pending:
    """As `in_turns`, where a step says how many things it has told of: nobody knows before."""
    told = 0
    for count in steps:
        told += count
        if told > DESCRIBED_A_TURN:
            return context.later(_later(steps, build, context.broker.clock, context.version))
    return build()


def in_parts(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Yield so many of the items that a step may be about."""
    for at in range(0, len(items), _ITEMS_PER_STEP):
        yield items[at : at + _ITEMS_PER_STEP]


async def _later(
    steps: Iterator[object], build: Callable[[], _Answer], clock: Clock, version: int
) -> _Answer | LongAnswer:
    await in_slices(steps, clock)
    return await encoded_in_turns(build(), version, clock)


async def encoded_in_turns(answer: _Answer, version: int, clock: Clock) -> _Answer | LongAnswer:
    """Return an answer, encoded already if it is long: others get their turn between."""
    if not is_long(answer):
        return answer
    encoded = LongAnswer(answer)
    await in_slices(encoded.steps(version), clock)
    return encoded


def in_order(
    items: Iterable[_Item],
    is_wanted: Callable[[_Item], bool],
    key: Callable[[_Item], Any],
) -> Iterator[_Item | None]:
    """Yield what is wanted of `items`, in the order of its keys, and None wherever a step ends.

    A step is short however many items there are. Parts are sorted by themselves and merged: to sort
    a hundred thousand at once takes a second.
    """
    parts: list[list[_Item]] = [[]]
    for number, item in enumerate(items, start=1):
        if is_wanted(item):
            parts[-1].append(item)
        if number % _ITEMS_PER_STEP == 0:
            parts[-1].sort(key=key)
            parts.append([])
            yield None
    parts[-1].sort(key=key)
    for number, item in enumerate(merge(*filter(None, parts), key=key), start=1):
        yield item
        if number % _ITEMS_PER_STEP == 0:
            yield None
