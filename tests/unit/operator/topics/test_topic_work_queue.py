"""Keys wait once, are worked on by one at a time, and come back later when they fail."""

import asyncio

from fairlead_operator.topics.work_queue import BACKOFF_S_MAX, BACKOFF_S_MIN, WorkQueue


class Clock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def make() -> tuple[Clock, WorkQueue[str]]:
    clock = Clock()
    return clock, WorkQueue(clock)


def test_a_key_waits_once_and_keys_come_in_order() -> None:
    _, queue = make()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert queue.take(10) == ["a", "b"]
    assert queue.take(10) == []


def test_a_batch_has_a_bound() -> None:
    _, queue = make()
    for number in range(5):
        queue.add(str(number))
    assert queue.take(3) == ["0", "1", "2"]
    assert queue.take(3) == ["3", "4"]


def test_what_is_added_during_the_work_waits_for_its_end() -> None:
    _, queue = make()
    queue.add("a")
    assert queue.take(1) == ["a"]
    queue.add("a")
    assert queue.take(1) == []
    queue.finish("a")
    assert queue.take(1) == ["a"]
    queue.finish("a")
    assert queue.take(1) == []


def test_an_earlier_wish_holds() -> None:
    clock, queue = make()
    queue.add("a", 5)
    queue.add("a", 1)
    queue.add("a", 3)
    assert queue.take(1) == []
    clock.now_s = 1
    assert queue.take(1) == ["a"]
    queue.finish("a")
    clock.now_s = 10
    assert queue.take(1) == []


def test_failures_are_spaced_out_and_forgotten_on_success() -> None:
    clock, queue = make()
    delays = []
    for _ in range(8):
        delays.append(queue.retry("a"))
        clock.now_s += delays[-1]
        assert queue.take(1) == ["a"]
        queue.finish("a")
    assert delays[:3] == [BACKOFF_S_MIN, 2 * BACKOFF_S_MIN, 4 * BACKOFF_S_MIN]
    assert delays[-1] == BACKOFF_S_MAX
    queue.succeeded("a")
    assert queue.retry("a") == BACKOFF_S_MIN


def test_a_batch_waits_for_the_first_key_and_gathers_what_comes_with_it() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue(asyncio.get_running_loop().time)
        waiting = asyncio.create_task(queue.batch(10, 0.01))
        await asyncio.sleep(0)
        queue.add("a")
        queue.add("b")
        assert await waiting == ["a", "b"]
        queue.add("c", 0.01)
        assert await queue.batch(10) == ["c"]

    asyncio.run(story())


def test_what_is_known_to_come_soon_is_asked_more_often() -> None:
    _, queue = make()
    for _ in range(6):
        delay_s = queue.retry("a", backoff_s_max=0.5)
    assert delay_s == 0.5
    queue.take(1)
    assert queue.retry("a") == BACKOFF_S_MAX
