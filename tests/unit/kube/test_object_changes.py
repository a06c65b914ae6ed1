"""Differences of a collection, and the text of watches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead_kube.errors import ApiError
from fairlead_kube.object_changes import ObjectChange, diff_event, diff_listing
from fairlead_kube.watch_stream import LINE_BYTES_MAX, WatchDecoder, WatchEvent


def pod(name: str, version: int, uid: str = "u") -> dict[str, Any]:
    metadata = {"namespace": "ns", "name": name, "resourceVersion": str(version), "uid": uid}
    return {"metadata": metadata}


def known(*pods: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {("ns", each["metadata"]["name"]): each for each in pods}


def line(sort: str, content: object) -> bytes:
    return json.dumps({"type": sort, "object": content}).encode() + b"\n"


def test_the_same_listing_again_changes_nothing() -> None:
    pods = [pod("a", 1), pod("b", 2)]
    assert diff_listing(known(*pods), pods) == []


def test_a_listing_tells_what_came_changed_and_went_while_nobody_looked() -> None:
    a, b, b_now, c = pod("a", 1), pod("b", 2), pod("b", 5), pod("c", 6)
    assert diff_listing(known(a, b), [b_now, c]) == [
        ObjectChange(("ns", "a"), a, None),
        ObjectChange(("ns", "b"), b, b_now),
        ObjectChange(("ns", "c"), None, c),
    ]


def test_an_object_made_again_under_its_name_is_two_changes() -> None:
    old, new = pod("a", 1, "first"), pod("a", 9, "second")
    both = [ObjectChange(("ns", "a"), old, None), ObjectChange(("ns", "a"), None, new)]
    assert diff_listing(known(old), [new]) == both
    assert diff_event(known(old), WatchEvent("ADDED", new)) == both


def test_objects_without_a_namespace_have_a_key_too() -> None:
    node = {"metadata": {"name": "n", "resourceVersion": "1", "uid": "u"}}
    assert diff_listing({}, [node]) == [ObjectChange(("", "n"), None, node)]


@pytest.mark.parametrize("sort", ["ADDED", "MODIFIED"])
def test_an_event_of_what_is_known_changes_nothing(sort: Any) -> None:
    assert diff_event(known(pod("a", 1)), WatchEvent(sort, pod("a", 1))) == []


def test_events_change_add_and_remove() -> None:
    a, a_now = pod("a", 1), pod("a", 2)
    changed = diff_event(known(a), WatchEvent("MODIFIED", a_now))
    assert changed == [ObjectChange(("ns", "a"), a, a_now)]
    assert diff_event({}, WatchEvent("ADDED", a)) == [ObjectChange(("ns", "a"), None, a)]
    removed = diff_event(known(a), WatchEvent("DELETED", a_now))
    assert removed == [ObjectChange(("ns", "a"), a, None)]
    assert diff_event({}, WatchEvent("DELETED", a)) == []
    assert diff_event(known(a), WatchEvent("BOOKMARK", pod("", 9))) == []


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_watch_is_read_in_pieces_of_any_size(size: int) -> None:
    text = line("ADDED", pod("ä", 1)) + line("BOOKMARK", pod("", 2)) + b"\n"
    decoder = WatchDecoder()
    events: list[WatchEvent] = []
    for start in range(0, len(text), size):
        events += decoder.feed(text[start : start + size])
    assert events == [WatchEvent("ADDED", pod("ä", 1)), WatchEvent("BOOKMARK", pod("", 2))]
    assert events[1].resource_version == "2"


def test_an_error_event_is_an_error() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    with pytest.raises(ApiError, match="410 Expired: too old") as error:
        list(WatchDecoder().feed(line("ERROR", status)))
    assert error.value.is_gone
    with pytest.raises(ApiError, match="without a description"):
        list(WatchDecoder().feed(line("ERROR", None)))


@pytest.mark.parametrize(
    "text",
    [b"nothing of json\n", b"[]\n", b'{"type":"ADDED"}\n', line("NEWS", pod("a", 1))],
)
def test_what_is_no_event_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        list(WatchDecoder().feed(text))


def test_a_line_without_an_end_is_refused() -> None:
    decoder = WatchDecoder()
    with pytest.raises(ValueError, match="a line of more than"):
        for _ in range(3):
            list(decoder.feed(b"x" * (LINE_BYTES_MAX // 2)))
