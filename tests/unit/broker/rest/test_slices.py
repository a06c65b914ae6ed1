"""Requests that work at once: all else has its turns as if there were one of them."""

import asyncio
from time import thread_time

from fairlead_broker.rest.documents.schema_validation import first_problem
from fairlead_broker.rest.documents.schemas import TEXT, array_of
from fairlead_broker.rest.slices import Slices

PART_S = 0.001


def work() -> None:
    end = thread_time() + PART_S
    while thread_time() < end:
        pass


def test_many_at_once_hold_up_others_for_a_slice() -> None:
    async def story() -> float:
        slices = Slices()
        done = 0

        async def request() -> None:
            nonlocal done
            for _ in range(5):
                await slices.rest()
                work()
            done += 1

        requests = [asyncio.ensure_future(request()) for _ in range(50)]
        longest, before = 0.0, thread_time()
        while done < len(requests):
            await asyncio.sleep(0)
            now = thread_time()
            longest, before = max(longest, now - before), now
        return longest

    longest = asyncio.run(story())
    assert longest < 0.02, f"{longest * 1000:.0f} ms"


def test_whoever_gives_up_holds_nobody_up() -> None:
    async def story() -> None:
        slices = Slices()

        async def request() -> None:
            for _ in range(5):
                await slices.rest()
                work()

        requests = [asyncio.ensure_future(request()) for _ in range(20)]
        await asyncio.sleep(0)
        for each in requests[::2]:
            each.cancel()
        async with asyncio.timeout(30):
            await asyncio.gather(*requests, return_exceptions=True)
        assert [each.cancelled() for each in requests[1::2]] == [False] * 10

    asyncio.run(story())


def test_too_many_items_are_refused_before_one_is_looked_at() -> None:
    problem = first_problem([1, 2, 3], array_of(TEXT, maxItems=2))
    assert problem is not None
    assert problem.validator == "maxItems"
