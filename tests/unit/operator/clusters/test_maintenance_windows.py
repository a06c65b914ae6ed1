"""When brokers may be restarted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead_operator.clusters.maintenance_windows import find_hold
from fairlead_operator.resources import ManifestError
from fairlead_operator.resources.maintenance_window import MaintenanceWindow
from fairlead_operator.specs.views import ClusterView


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def window(start: str, minutes: int, *days: Any, zone: str = "Etc/UTC") -> MaintenanceWindow:
    return MaintenanceWindow(start=start, duration_minutes=minutes, days=days, time_zone=zone)


def until(now: str, *windows: MaintenanceWindow, allowed: str = "") -> str | None:
    hold = find_hold(windows, allowed, at(now))
    return None if hold is None else hold.until


NIGHT = window("02:00", 120)
SUNDAY = window("22:00", 240, "Sunday")
"""Into Monday."""


def test_without_windows_brokers_restart_at_any_time() -> None:
    assert until("2026-11-24T12:00") is None


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-11-24T01:59:59", "2026-11-24T02:00:00Z"),
        ("2026-11-24T02:00", None),
        ("2026-11-24T03:59:59", None),
        ("2026-11-24T04:00", "2026-11-25T02:00:00Z"),
    ],
)
def test_a_window_of_every_day_includes_its_start_and_not_its_end(
    now: str, expected: str | None
) -> None:
    assert until(now, NIGHT) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-11-22T21:59", "2026-11-22T22:00:00Z"),
        ("2026-11-22 23:00", None),
        ("2026-11-23T01:59", None),
        ("2026-11-23T02:00", "2026-11-29T22:00:00Z"),
    ],
)
def test_a_window_goes_on_past_midnight_of_its_day(now: str, expected: str | None) -> None:
    assert until(now, SUNDAY) == expected


def test_the_earliest_of_several_windows_is_named_and_any_of_them_lets_brokers_restart() -> None:
    assert until("2026-11-22T12:00", NIGHT, SUNDAY) == "2026-11-22T22:00:00Z"
    assert until("2026-11-23T03:00", SUNDAY, NIGHT) is None


def test_a_window_of_a_week_is_always_open() -> None:
    always = window("00:00", 7 * 24 * 60, "Wednesday")
    for day in range(1, 29):
        assert until(f"2026-02-{day:02} 23:59", always) is None


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        # Winter: UTC+1; summer: UTC+2.
        ("2026-01-10T12:00", "2026-01-11T01:30:00Z"),
        ("2026-07-10T12:00", "2026-07-11T00:30:00Z"),
        # Clocks skip 02:30 on that day: it counts as 03:30 of summer time.
        ("2026-03-28T12:00", "2026-03-29T01:30:00Z"),
        # They show it twice: the first one, and an hour after that is still the same window.
        ("2026-10-24T12:00", "2026-10-25T00:30:00Z"),
        ("2026-10-25T01:59", None),
        ("2026-10-25T02:00", "2026-10-26T01:30:00Z"),
    ],
)
def test_a_window_begins_by_the_clocks_of_its_zone_and_lasts_by_none(
    now: str, expected: str | None
) -> None:
    assert until(now, window("02:30", 90, zone="Europe/Berlin")) == expected


def test_the_day_is_that_of_the_zone() -> None:
    tokyo = window("03:00", 60, "Monday", zone="Asia/Tokyo")
    assert until("2026-11-22T17:59", tokyo) == "2026-11-22T18:00:00Z"
    assert until("2026-11-22T18:30", tokyo) is None


@pytest.mark.parametrize("text", ["2026-11-24T14:00:00Z", "2026-11-24T15:00:00+01:00"])
def test_a_person_may_let_brokers_restart_until_a_time(text: str) -> None:
    assert until("2026-11-24T13:59:59", NIGHT, allowed=text) is None
    assert until("2026-11-24T14:00", NIGHT, allowed=text) == "2026-11-25T02:00:00Z"


@pytest.mark.parametrize("text", ["yes", "2026-11-24T14:00:00"])
def test_what_is_no_time_is_said_and_allows_nothing(text: str) -> None:
    hold = find_hold([NIGHT], text, at("2026-11-24T12:00"))
    assert hold is not None
    assert f"fairlead.io/restarts-allowed-until says {text!r}" in hold.message


def test_a_zone_that_is_not_known_is_refused_by_name() -> None:
    windows = [{"start": "02:00", "durationMinutes": 60, "timeZone": "Europe/Atlantis"}]
    manifest = {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "LogCluster",
        "metadata": {"name": "demo", "namespace": "shop", "uid": "1"},
        "spec": {"maintenanceWindows": windows},
    }
    with pytest.raises(ManifestError, match=r"maintenanceWindows\[0\].timeZone: Europe/Atlantis"):
        ClusterView.from_manifest(manifest)
    windows[0]["timeZone"] = "Europe/Berlin"
    assert ClusterView.from_manifest(manifest).spec.maintenance_windows[0].days == ()
