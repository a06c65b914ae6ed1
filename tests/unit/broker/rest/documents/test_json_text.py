"""JSON as RFC 7493 has it, at a cost that grows no faster than the text."""

import threading
import time
from collections.abc import Callable
from time import thread_time

import pytest

from fairlead_broker.rest.documents.json_text import (
    SMALL_BYTES,
    JsonError,
    dump_json,
    load_json,
)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a":1,"b":2,"c":3,"b":4,"a":5}', "an object has the name 'b' twice"),
        (b"[NaN]", "NaN is no JSON"),
        (b'"\xff"', "byte 1 is not UTF-8"),
        (b"[1", "Expecting ',' delimiter at character 2"),
    ],
)
def test_what_is_no_json_is_told(data: bytes, reason: str) -> None:
    with pytest.raises(JsonError) as caught:
        load_json(data)
    assert str(caught.value) == reason


def test_a_whole_number_is_an_int_where_it_is_asked_for() -> None:
    data = b"[1, 1.0, 2e0, 1.5, -0.0, 1e999]"
    found = load_json(data, has_ints=True)
    assert found == [1, 1, 2, 1.5, 0, float("inf")]
    assert list(map(type, found)) == [int, int, int, float, int, float]
    assert list(map(type, load_json(data))) == [int] + [float] * 5


def test_the_name_that_is_repeated_is_found_at_once() -> None:
    names = ",".join(f'"{number}":0' for number in range(25_000))
    before = thread_time()
    with pytest.raises(JsonError, match="'last' twice"):
        load_json(f'{{{names},"last":0,"last":0}}'.encode())
    assert thread_time() - before < 0.5


LARGE = [
    [],
    {},
    "text",
    [[]] * 100,
    list(range(100)),
    [*range(40), {"a": [1.5, None, True, "\u00fc"], "": {}}, *range(40)],
    {"a": {"b": [[1], [{}], '"\\']}, "c": -0.0, "d": 10**40, "e": 1e300},
]


@pytest.mark.parametrize("value", LARGE, ids=str)
def test_a_large_value_is_written_as_a_small_one(value: object) -> None:
    assert dump_json(value, is_large=True) == dump_json(value)


@pytest.mark.parametrize("value", [float("inf"), ["\ud800"], {"\ud800": 1}, [1.5, float("nan")]])
def test_a_large_value_is_refused_as_a_small_one(value: object) -> None:
    for is_large in (False, True):
        with pytest.raises(JsonError):
            dump_json(value, is_large=is_large)


def test_a_large_text_is_read_as_a_small_one() -> None:
    text = b'{"a": [1, -0, 1.50, 1e2, 12345678901234567890, "1", null, true, {"b": []}]}'
    for has_ints in (False, True):
        small = load_json(text, has_ints=has_ints)
        large = load_json(text + b" " * SMALL_BYTES, has_ints=has_ints)
        assert repr(large) == repr(small)
    for refused in (b"[NaN]", b'{"a":1,"a":2}', b"[1", b"[" + b"1" * 5000 + b"]"):
        with pytest.raises(JsonError):
            load_json(refused + b" " * SMALL_BYTES)


def _read(data: bytes) -> Callable[[], object]:
    return lambda: load_json(data)


def _write(data: bytes) -> Callable[[], object]:
    document = load_json(data)
    return lambda: dump_json(document, is_large=True)


@pytest.mark.parametrize("step", [_read, _write])
def test_other_threads_go_on_while_a_large_text_is_read_and_written(
    step: Callable[[bytes], Callable[[], object]],
) -> None:
    """Processor time of the thread between two turns, and not turns: others may keep us waiting."""
    work = step(f"[{','.join(['1.2345678901234567e-250'] * 400_000)}]".encode())
    took_s: list[float] = []
    is_seen = threading.Event()

    def run() -> None:
        work()
        took_s.append(time.thread_time())
        is_seen.wait()  # The clock of a thread ends with it.

    thread = threading.Thread(target=run)
    thread.start()
    clock = time.pthread_getcpuclockid(thread.ident or 0)
    longest_s = before_s = 0.0
    while not took_s:
        time.sleep(0)  # It gives up the lock of the interpreter, as a turn of the loop does.
        now_s = time.clock_gettime(clock)
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
    is_seen.set()
    thread.join()
    assert longest_s < took_s[0] / 2
