import asyncio
import logging
import re
from typing import Any

import pytest

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_operator.event_ledger import WRITES_PER_MINUTE_MAX
from fairlead_operator.events import EventWriter, shortened_note

TOPIC: dict[str, Any] = {
    "apiVersion": "fairlead.io/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "orders", "namespace": "shop", "uid": "u1", "resourceVersion": "7"},
}


class FakeApi(KubeClient):
    """Takes Events, or fails as told."""

    def __init__(self) -> None:
        self.created: list[tuple[str | None, dict[str, Any]]] = []
        self.patched: list[tuple[str | None, str, Any]] = []
        self.failure: Exception | None = None

    async def create(self, kind: Any, namespace: Any, body: Any, **_: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        self.created.append((namespace, body))

    async def patch(self, kind: Any, namespace: Any, name: Any, patch: Any, **_: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        self.patched.append((namespace, name, patch))


class Clock:
    now_s = 1_790_000_000.25

    def __call__(self) -> float:
        return self.now_s


def writer(api: FakeApi, clock: Clock) -> EventWriter:
    return EventWriter(api, instance="fairlead-operator-0", clock=clock)


def test_an_event_says_what_about_which_object() -> None:
    api = FakeApi()
    events = writer(api, Clock())
    asyncio.run(events.emit(TOPIC, "TopicPlaced", "3 partitions on brokers 0, 1 and 2"))
    ((namespace, event),) = api.created
    assert namespace == "shop"
    assert event["metadata"].pop("name").startswith("orders.")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "shop"},
        "eventTime": "2026-09-21T14:13:20.250000Z",
        "reportingController": "fairlead.io/operator",
        "reportingInstance": "fairlead-operator-0",
        "action": "Reconcile",
        "reason": "TopicPlaced",
        "type": "Normal",
        "note": "3 partitions on brokers 0, 1 and 2",
        "regarding": {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "Topic",
            "name": "orders",
            "namespace": "shop",
            "uid": "u1",
            "resourceVersion": "7",
        },
    }
    assert events.counters.written == 1


@pytest.mark.parametrize("end", ["x", "-", ".", "--"])
def test_an_event_about_an_object_with_a_long_name_has_a_name_that_kubernetes_accepts(
    end: str,
) -> None:
    api = FakeApi()
    metadata = {**TOPIC["metadata"], "name": f"{'a' * (220 - len(end))}{end}{'b' * 33}"}
    asyncio.run(writer(api, Clock()).emit({**TOPIC, "metadata": metadata}, "TopicPlaced", "3"))
    ((_, event),) = api.created
    name = event["metadata"]["name"]
    assert len(name) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name)
    assert event["regarding"]["name"] == metadata["name"]


def test_the_same_event_becomes_a_series() -> None:
    api, clock = FakeApi(), Clock()
    events = writer(api, clock)
    asyncio.run(events.emit(TOPIC, "Conflict", "taken", "Warning"))
    clock.now_s += 60
    asyncio.run(events.emit(TOPIC, "Conflict", "taken", "Warning"))
    name = api.created[0][1]["metadata"]["name"]
    series = {"count": 2, "lastObservedTime": "2026-09-21T14:14:20.250000Z"}
    assert api.patched == [("shop", name, {"series": series})]
    assert len(api.created) == 1


def test_what_was_left_out_is_said_by_the_next() -> None:
    api, clock = FakeApi(), Clock()
    events = writer(api, clock)
    for number in range(WRITES_PER_MINUTE_MAX + 5):
        asyncio.run(events.emit(TOPIC, "LeaderElected", f"partition {number}"))
    clock.now_s += 60
    asyncio.run(events.emit(TOPIC, "LeaderElected", "y" * 3000))
    note = api.created[-1][1]["note"]
    assert note.endswith("y… (5 more of this reason before it were left out)")
    assert len(note.encode()) <= 1024


@pytest.mark.parametrize(
    "failure",
    [ApiError(403, "Forbidden", "no"), ApiUnavailableError("no answer", may_have_landed=True)],
)
def test_a_failed_write_is_counted_and_logged_and_the_next_is_tried(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    api = FakeApi()
    events = writer(api, Clock())
    api.failure = failure
    with caplog.at_level(logging.WARNING):
        asyncio.run(events.emit(TOPIC, "TopicPlaced", "placed"))
    assert (events.counters.written, events.counters.failed) == (0, 1)
    assert "the Event TopicPlaced about shop/orders was not written" in caplog.text
    api.failure = None
    asyncio.run(events.emit(TOPIC, "TopicPlaced", "placed"))
    assert len(api.created) == 1


def test_notes_are_cut_between_characters() -> None:
    assert shortened_note("short") == "short"
    cut = shortened_note("ä" * 600)
    assert cut.endswith("ä…")
    assert 1022 <= len(cut.encode()) <= 1024
