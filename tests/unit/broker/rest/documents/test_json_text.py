"""JSON as RFC 7493 has it, at a cost that grows no faster than the text."""

import threading
import time
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


@pytest.mark.parametrize("number", ["1.2345678901234567e-250", "12345678901234567890"])
def test_other_threads_go_on_while_a_large_text_is_read_and_written(number: str) -> None:
    data = f"[{','.join([number] * 50_000)}]".encode()
    ended = threading.Event()

    def work() -> None:
        dump_json(load_json(data), is_large=True)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    turns = 0
    while not ended.wait(0):
        turns += 1
        time.sleep(0)  # It gives up the lock of the interpreter, as a turn of the loop does.
    thread.join()
    assert turns > 5
