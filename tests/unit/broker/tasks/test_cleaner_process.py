"""A compacting child that dies, hangs or talks nonsense is an error by its name, never a hang."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fairlead_broker.log.compaction.cleaner_worker import NonsenseError, decode_group, decode_report
from fairlead_broker.log.compaction.cleaning_plan import SegmentFacts
from fairlead_broker.log.compaction.log_cleaning import CleaningOrder
from fairlead_broker.tasks import cleaner_process
from fairlead_broker.tasks.cleaner_process import CleanerDiedError, CleanerProcess

SLEEP = "import time; time.sleep(60)"


def order(segments: int = 1) -> CleaningOrder:
    return CleaningOrder(
        directory="/nowhere",
        segments=[SegmentFacts(at, 1, 0, 0, -1, at + 1) for at in range(segments)],
        first_dirty_offset=0,
        now_ms=0,
        delete_retention_ms=0,
        segment_bytes=1,
        segment_index_bytes=1,
        index_interval_bytes=1,
        dedupe_buffer_bytes=1,
    )


def expect_death(code: str, why: str, *, segments: int = 1) -> None:
    async def story() -> None:
        with ThreadPoolExecutor(2) as executor:
            process = CleanerProcess(executor, (sys.executable, "-c", code))
            with pytest.raises(CleanerDiedError, match=why):
                async for _ in process.run(order(segments)):
                    pass
            await process.kill()
            assert process.pid is None

    asyncio.run(story())


@pytest.mark.parametrize("line", ["nonsense", "5", "[]", "\\xff\\xfe", '{"bytes": '])
def test_nonsense(line: str) -> None:
    expect_death(f"print('{line}', flush=True); {SLEEP}", "the cleaner said")


def test_no_end_of_a_line() -> None:
    expect_death("while True: print('x' * 100_000, end='')", "a message of .* bytes")


def test_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    expect_death("input()", "ended unexpectedly")
    expect_death("import sys; sys.exit(1)", "ended unexpectedly|hung up")


def test_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner_process, "CLEANER_SILENCE_S", 0.3)
    expect_death(SLEEP, "said nothing for")
    # Nor does it read: the order of many segments fills the pipe.
    expect_death(SLEEP, "said nothing for", segments=20_000)


def test_it_cannot_be_started() -> None:
    async def story() -> None:
        with ThreadPoolExecutor(1) as executor:
            process = CleanerProcess(executor, ("/nowhere/to/be/found",))
            with pytest.raises(CleanerDiedError, match="could not be started"):
                async for _ in process.run(order()):
                    pass

    asyncio.run(story())


@pytest.mark.parametrize(
    "fields",
    [
        None,
        5,
        {},
        {"source_bases": [], "size": 1, "index_size": 0, "time_index_size": 0},
        {"source_bases": ["0"], "size": 1, "index_size": 0, "time_index_size": 0},
        {"source_bases": 3, "size": 1, "index_size": 0, "time_index_size": 0},
        {"source_bases": [0], "size": "x", "index_size": 0, "time_index_size": 0},
        {"source_bases": [0], "size": 1, "index_size": 0, "time_index_size": 0, "more": 1},
    ],
)
def test_no_group(fields: Any) -> None:
    with pytest.raises(NonsenseError):
        decode_group(fields)


@pytest.mark.parametrize(
    "fields", [None, 5, {}, {"counts": {}}, {"counts": 5}, {"counts": {"x": 1}}]
)
def test_no_report(fields: Any) -> None:
    with pytest.raises(NonsenseError):
        decode_report(fields)
