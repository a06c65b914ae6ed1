"""The load of the tests on Kubernetes, with a real broker and a kubectl that runs things here."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kubernetes_commands import Kubectl
from kubernetes_load import under_load
from waiting import wait_until

PARTITIONS, RATE = 3, 200
TOPIC = "loaded"


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """One whose client pod is this machine."""
    python = shlex.quote(sys.executable)
    stand_in(
        tmp_path / "kubectl",
        'while [ "$1" != -- ]; do shift; done; shift\n'
        f'if [ "$1" = python ]; then shift; exec {python} "$@"; fi\n'
        'exec "$@"\n',
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return Kubectl("here")


def stand_in(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)


def test_it_begins_with_records_and_ends_with_a_verdict(
    make_cluster: Callable[..., Any], kubectl: Kubectl, tmp_path: Path
) -> None:
    cluster = make_cluster(brokers=1)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    stop_file = tmp_path / "stop"
    log = cluster.brokers[0].data

    def bytes_written() -> int:
        return sum(path.stat().st_size for path in log.glob(f"{TOPIC}-*/*.log"))

    load = under_load(
        kubectl,
        cluster.bootstrap,
        TOPIC,
        partitions=PARTITIONS,
        rate=RATE,
        stop_file=str(stop_file),
    )
    with load as verdict:
        begun = bytes_written()
        assert begun > 0
        wait_until(lambda: bytes_written() > begun)
    assert verdict["acknowledged"] > 0
    assert [verdict[name] for name in ("lost", "duplicated", "reordered", "unanswered")] == [0] * 4


def test_a_load_that_cannot_begin_says_why(kubectl: Kubectl, tmp_path: Path) -> None:
    stand_in(tmp_path / "kubectl", "echo there is no pod >&2; exit 1\n")
    load = under_load(kubectl, "x", TOPIC, partitions=1, rate=RATE, stop_file="x")
    with pytest.raises(AssertionError, match="has not begun: there is no pod"), load:
        pytest.fail("there is no load")
