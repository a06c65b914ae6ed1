"""Produces behind one that is verified: in order, once each, and bounded."""

from fairlead_broker.transaction.waiting_produces import WaitingProduces


def test_each_goes_on_once_in_order_and_stops_behind_the_next_that_is_verified() -> None:
    waiting = WaitingProduces(bytes_max=1_000)
    gone_on: list[int] = []

    def go_on(number: int) -> None:
        gone_on.append(number)
        if number == 2:
            assert waiting.begin("c", 10)

    assert waiting.begin("c", 10)
    for number in (1, 2, 3, 4):
        assert waiting.wait("c", lambda number=number: go_on(number), 100)  # type: ignore[misc]
    assert waiting.bytes == 410
    waiting.finish("c")
    assert (gone_on, waiting.bytes, waiting.must_wait("c")) == ([1, 2], 210, True)
    waiting.finish("c")
    assert (gone_on, waiting.bytes, waiting.must_wait("c")) == ([1, 2, 3, 4], 0, False)


def test_connections_wait_for_themselves_only() -> None:
    waiting = WaitingProduces(bytes_max=1_000)
    gone_on: list[str] = []
    for connection in ("c", "d"):
        waiting.begin(connection, 10)
        waiting.wait(connection, lambda connection=connection: gone_on.append(connection), 100)  # type: ignore[misc]
    waiting.forget("c")
    assert (waiting.bytes, waiting.must_wait("c")) == (110, False)
    waiting.finish("d")
    assert (gone_on, waiting.bytes) == (["d"], 0)


def test_all_of_them_together_are_bounded() -> None:
    waiting = WaitingProduces(bytes_max=300)
    assert waiting.begin("c", 100)
    assert waiting.wait("c", lambda: None, 150)
    assert not waiting.wait("c", lambda: None, 51)
    assert not waiting.begin("d", 51)
    assert (waiting.bytes, waiting.must_wait("d")) == (250, False)
    assert waiting.begin("d", 50)
