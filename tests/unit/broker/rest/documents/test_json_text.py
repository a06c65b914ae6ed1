"""JSON as RFC 7493 has it, at a cost that grows no faster than the text."""

from time import thread_time

import pytest

from fairlead_broker.rest.documents.json_text import JsonError, load_json


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
