"""How tests wait: until it is so, and not for ever."""

import asyncio

import pytest
from waiting import until, wait_until


def test_it_gives_what_came_true() -> None:
    answers = iter([None, "", "there"])
    assert wait_until(lambda: next(answers)) == "there"


def test_it_ends_and_says_what_was_missing() -> None:
    seen: list[int] = []
    with pytest.raises(AssertionError, match=r"only \d+ looks"):
        wait_until(lambda: seen.append(1), lambda: f"only {len(seen)} looks", deadline_s=0.05)
    assert seen


def test_a_loop_goes_on_meanwhile_and_questions_may_be_asked_of_it() -> None:
    async def story() -> None:
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.02, done.set_result, 5)

        async def ask() -> int:
            return done.result() if done.done() else 0

        assert await until(ask) == 5
        assert await until(done.done)
        with pytest.raises(AssertionError, match="never"):
            await until(lambda: False, "never", deadline_s=0.05)

    asyncio.run(story())
