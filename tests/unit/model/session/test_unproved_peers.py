"""Who goes when too many come that have not proved who they are."""

from fairlead_model.session.unproved_peers import UnprovedPeers


def full(*, total_max: int = 4, per_address_max: int = 3) -> UnprovedPeers[str]:
    return UnprovedPeers(total_max=total_max, per_address_max=per_address_max, patience_s=5)


def test_the_oldest_of_an_address_makes_room_for_its_next() -> None:
    peers = full()
    assert [peers.add(name, "flood", 0) for name in "abc"] == [None] * 3
    assert peers.add("broker", "other", 0) is None
    assert [peers.add(name, "flood", 0) for name in "de"] == ["a", "b"]
    assert "broker" in peers
    assert len(peers) == 4


def test_the_address_with_the_most_makes_room_for_others() -> None:
    peers = full()
    for name, address in (("broker", "b"), ("a", "flood"), ("c", "flood"), ("d", "e")):
        peers.add(name, address, 0)
    assert peers.add("next", "n", 0) == "a"
    assert len(peers) == 4


def test_a_flood_of_single_addresses_pushes_out_the_oldest() -> None:
    peers = full()
    leaving = [peers.add(str(number), str(number), 0) for number in range(100)]
    assert leaving == [None] * 4 + [str(number) for number in range(96)]


def test_who_proves_itself_is_never_pushed_out_and_never_overdue() -> None:
    peers = full(per_address_max=2)
    peers.add("broker", "same", 0)
    peers.discard("broker")
    peers.discard("broker")
    assert [peers.add(name, "same", 0) for name in "abc"] == [None, None, "a"]
    assert peers.take_overdue(100) == ["b", "c"]
    assert len(peers) == 0


def test_patience_ends_one_by_one() -> None:
    peers = full()
    peers.add("a", "x", 10)
    peers.add("b", "y", 11)
    assert peers.take_overdue(14.9) == []
    assert peers.take_overdue(15) == ["a"]
    assert peers.take_overdue(15) == []
    assert peers.take_overdue(16) == ["b"]


def test_one_goes_for_whom_there_is_no_room() -> None:
    peers = full()
    for name, address in (("broker", "b"), ("a", "flood"), ("c", "flood")):
        peers.add(name, address, 0)
    assert [peers.take_oldest() for _ in range(4)] == ["a", "broker", "c", None]
