"""A StreamJob on a real cluster: two executors, a broker and an executor lost, suspended, deleted.

The job is the example in SQL. Its source and sink are read by kcat's way of counting: the command
line in the client's pod, which knows nothing of Spark.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes_commands import CommandError, wait_until
from kubernetes_installation import (
    CLUSTER,
    POOL,
    ROOT,
    SPARK_IMAGE,
    Installation,
    Summary,
)

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(480)]

JOB = "late-flights"
MANIFEST = ROOT / "examples" / "spark" / "late_flights.yaml"
LABEL = f"fairlead.io/stream-job={JOB}"
FIRST, SECOND, THIRD = 30_000, 10_000, 5_000
LATE_EVERY = 3
START_S = 180.0
CATCH_UP_S = 120.0


class Flights:
    """Numbered flights, every third of which is late."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._count = 0

    def produce(self, count: int) -> None:
        numbers = range(self._count, self._count + count)
        self._count += count
        lines = "".join(
            json.dumps(
                {
                    "carrier": f"C{number % 16}",
                    "flight": number,
                    "origin": "JFK",
                    "dest": "LAX",
                    "dep_delay": 61.0 if number % LATE_EVERY == 0 else 5.0,
                }
            )
            + "\n"
            for number in numbers
        )
        self._installation.fairlead("produce", "flights", stdin=lines)

    def expected(self) -> set[int]:
        return set(range(0, self._count, LATE_EVERY))

    def found(self) -> Counter[int]:
        out = self._installation.fairlead("consume", JOB, "--from", "beginning", "--until-end")
        return Counter(json.loads(line)["flight"] for line in out.splitlines())


@pytest.fixture(scope="module")
def flights(installation: Installation) -> Iterator[Flights]:
    if not SPARK_IMAGE:
        pytest.fail("no image of Spark: run `make e2e`")
    installation.ensure_installed()
    installation.ensure_client()
    for name, partitions in (("flights", 6), (JOB, 3)):
        installation.renew_topic(name, partitions=partitions)
    yield Flights(installation)
    installation.kubectl("delete", "streamjob", JOB, "--ignore-not-found")


def status(installation: Installation) -> dict[str, Any]:
    return dict(installation.kubectl.get("streamjob", JOB).get("status") or {})


def pods(installation: Installation, role: str) -> list[dict[str, Any]]:
    found = installation.kubectl.items("pods", "-l", f"{LABEL},spark-role={role}")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def wait_for_phase(installation: Installation, phase: str, timeout_s: float) -> float:
    return wait_until(
        lambda: status(installation).get("phase") == phase,
        f"the job is not {phase}",
        timeout_s,
    )


def describe(installation: Installation) -> str:
    """What the job says of itself, and what its driver and executors said last."""
    said = [json.dumps(status(installation), indent=1)]
    for pod in (pod for role in ("driver", "executor") for pod in pods(installation, role)):
        try:
            said.append(installation.kubectl("logs", pod["metadata"]["name"], "--tail=60"))
        except CommandError as error:
            said.append(str(error))
    return "\n".join(said)


def wait_for_result(installation: Installation, flights: Flights) -> float:
    """Until everything late is in the sink; what came twice is counted, not waited away."""
    started = time.monotonic()
    try:
        wait_until(
            lambda: flights.found().keys() == flights.expected(),
            "the sink does not hold what is late",
            CATCH_UP_S,
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{describe(installation)}") from error
    took_s = time.monotonic() - started
    wait_until(lambda: status(installation).get("lag") == 0, "the lag is not 0", 60)
    return took_s


def test_rows_flow_and_the_lag_falls_to_nothing(
    installation: Installation, flights: Flights, summary: Summary
) -> None:
    flights.produce(FIRST)
    installation.kubectl("apply", "-f", str(MANIFEST))
    took_s = wait_for_phase(installation, "Running", START_S)
    wait_for_result(installation, flights)
    now = status(installation)
    assert (now["run"], now["executors"]) == (1, 2)
    assert now["batchId"] >= 0
    assert sum(flights.found().values()) == len(flights.expected()), "doubled without a fault"
    groups = installation.fairlead("group", "describe", JOB, "-o", "json")
    assert json.loads(groups)[0]["lag"] == 0
    table = installation.kubectl("get", "streamjobs")
    assert "Running" in table
    summary.add("StreamJob applied until it runs", f"{took_s:.0f} s")


def test_neither_a_broker_nor_an_executor_nor_the_operator_is_missed(
    installation: Installation, flights: Flights, summary: Summary
) -> None:
    driver = pods(installation, "driver")[0]["metadata"]["uid"]
    flights.produce(SECOND)
    executor = pods(installation, "executor")[0]["metadata"]["name"]
    installation.kubectl("delete", "pod", executor, "--grace-period=0", "--force", "--wait=false")
    installation.kubectl("delete", "pod", f"{CLUSTER}-{POOL}-1", "--grace-period=0", "--force")
    holder, _ = installation.lease()
    installation.operator("delete", "pod", holder.pod, "--wait=false")
    flights.produce(SECOND)
    took_s = wait_for_result(installation, flights)
    wait_until(
        lambda: status(installation).get("executors") == 2, "the executor was not replaced", 60
    )
    assert pods(installation, "driver")[0]["metadata"]["uid"] == driver, "the driver was disturbed"
    repeated = sum(flights.found().values()) - len(flights.expected())
    summary.add(
        "executor, broker and operator lost under a StreamJob",
        f"caught up after {took_s:.0f} s, {repeated} rows repeated",
        "none missing",
    )


def test_suspended_and_resumed_where_it_was(
    installation: Installation, flights: Flights, summary: Summary
) -> None:
    before = sum(flights.found().values())
    patch_suspend(installation, suspended=True)
    wait_for_phase(installation, "Suspended", 90)
    # Kubernetes deletes executors once it has heard that their driver is gone.
    wait_until(
        lambda: not pods(installation, "driver") and not pods(installation, "executor"),
        "pods of the job are left",
        60,
    )
    flights.produce(THIRD)
    patch_suspend(installation, suspended=False)
    took_s = wait_for_phase(installation, "Running", START_S)
    wait_for_result(installation, flights)
    new = sum(flights.found().values()) - before
    # It was ended between two batches: none is done again.
    late = range(0, FIRST + 2 * SECOND + THIRD, LATE_EVERY)
    assert new == sum(number >= FIRST + 2 * SECOND for number in late)
    assert status(installation)["run"] == 2
    summary.add("StreamJob resumed from its checkpoint", f"{took_s:.0f} s")


def test_a_deleted_job_leaves_nothing(installation: Installation, flights: Flights) -> None:
    installation.kubectl("delete", "streamjob", JOB)

    def is_gone() -> bool:
        kinds = "pods,services,configmaps,persistentvolumeclaims"
        return not installation.kubectl("get", kinds, "-l", LABEL, "-o", "name").strip()

    wait_until(is_gone, "something of the job is left", 90)


def test_an_impossible_job_says_why(installation: Installation) -> None:
    manifest = {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "StreamJob",
        "metadata": {"name": "wrong"},
        "spec": {
            "application": {"file": "/opt/fairlead/jobs/x.py"},
            "checkpoint": {"ephemeral": True},
            "sparkConf": {"spark.executor.instances": "9"},
        },
    }
    installation.kubectl.apply(manifest)
    try:
        wait_until(
            lambda: (
                installation.kubectl.condition("streamjob", "wrong", "Ready").get("reason")
                == "InvalidSpec"
            ),
            "the job is not refused",
            60,
        )
    finally:
        installation.kubectl("delete", "streamjob", "wrong")
    broken = {**manifest, "spec": {**manifest["spec"], "checkpoint": {}}}  # type: ignore[dict-item]
    with pytest.raises(CommandError, match="set exactly one of claim, uri and ephemeral"):
        installation.kubectl.apply(broken)


def patch_suspend(installation: Installation, *, suspended: bool) -> None:
    patch = json.dumps({"spec": {"suspend": suspended}})
    installation.kubectl("patch", "streamjob", JOB, "--type=merge", "-p", patch)
