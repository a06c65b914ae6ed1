"""Events as the API server takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from resource_manifests import topic

from fairlead_kube.kinds import EVENT, TOPIC
from fairlead_operator.event_ledger import SERIES_WRITE_INTERVAL_S, WRITES_PER_MINUTE_MAX
from fairlead_operator.events import EventWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_kube.client import KubeClient

    Run = Callable[[Any], Any]

pytestmark = pytest.mark.kubernetes


class Clock:
    now_s = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now_s


def events_of(kube: KubeClient, run: Run, namespace: str) -> list[dict[str, Any]]:
    return list(run(kube.list(EVENT, namespace)).items)


def test_events_are_taken_repeated_and_bounded(kube: KubeClient, namespace: str, run: Run) -> None:
    orders = run(kube.create(TOPIC, namespace, topic()))
    clock = Clock()
    writer = EventWriter(kube, clock=clock)
    run(writer.emit(orders, "Conflict", "ä" * 2000, "Warning"))
    clock.now_s += SERIES_WRITE_INTERVAL_S
    run(writer.emit(orders, "Conflict", "ä" * 2000, "Warning"))
    (event,) = events_of(kube, run, namespace)
    assert event["regarding"]["uid"] == orders["metadata"]["uid"]
    assert event["regarding"]["kind"] == "Topic"
    assert event["type"] == "Warning"
    assert event["series"]["count"] == 2
    assert event["note"].endswith("ä…")

    for number in range(2 * WRITES_PER_MINUTE_MAX):
        run(writer.emit(orders, "LeaderElected", f"partition {number}: broker 1 leads"))
    assert len(events_of(kube, run, namespace)) == WRITES_PER_MINUTE_MAX
    clock.now_s += 60
    run(writer.emit(orders, "LeaderElected", "partition 0: broker 2 leads"))
    notes = [found["note"] for found in events_of(kube, run, namespace)]
    left_out = WRITES_PER_MINUTE_MAX + 1
    expected = f"broker 2 leads ({left_out} more of this reason before it were left out)"
    assert any(note.endswith(expected) for note in notes)
    assert writer.counters.failed == 0


def test_an_event_about_what_is_in_no_such_namespace_is_counted_and_no_error(
    kube: KubeClient, namespace: str, run: Run
) -> None:
    orders = topic()
    orders["metadata"] |= {"namespace": f"{namespace}-gone", "uid": "u1"}
    writer = EventWriter(kube)
    run(writer.emit(orders, "TopicPlaced", "placed"))
    assert (writer.counters.written, writer.counters.failed) == (0, 1)
