"""ConsumerGroup resources against a real API server, with groups in memory and a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from fake_groups import FakeGroups
from local_cluster import Cli, take_cluster_ports

from fairlead_kube.kinds import CONSUMER_GROUP, EVENT, LOG_CLUSTER
from fairlead_operator.consumer_groups.group_sight import Member
from fairlead_operator.consumer_groups.kafka_client import KafkaGroupClient
from fairlead_operator.consumer_groups.metrics import GroupMetrics
from fairlead_operator.consumer_groups.sync import GroupSync
from fairlead_operator.events import EventWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fairlead_kube.client import KubeClient
    from fairlead_operator.consumer_groups.group_client import GroupClient

pytestmark = pytest.mark.kubernetes

DEADLINE_S = 60.0
A0, A1 = ("a", 0), ("a", 1)
GROUPS = 300
REFRESH_S = 5


class Bench:
    """A namespace with groups, and an operator's part for them that can be restarted."""

    def __init__(
        self, kube: KubeClient, namespace: str, connect: Callable[[Any], GroupClient]
    ) -> None:
        self.kube = kube
        self.namespace = namespace
        self.connect = connect
        self.sync: GroupSync
        self._task: asyncio.Task[None] | None = None

    async def start_operator(self) -> None:
        self.sync = GroupSync(
            self.kube, EventWriter(self.kube), namespaces=[self.namespace], connect=self.connect
        )
        self._task = asyncio.create_task(self.sync.run())

    async def stop_operator(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def make_cluster(self, name: str = "demo") -> None:
        await self.kube.create(LOG_CLUSTER, self.namespace, manifest("LogCluster", name))

    async def create(self, name: str, **spec: Any) -> None:
        spec = {"refreshSeconds": REFRESH_S} | spec
        await self.kube.create(
            CONSUMER_GROUP, self.namespace, manifest("ConsumerGroup", name, **spec)
        )

    async def patch(self, name: str, **spec: Any) -> None:
        await self.kube.patch(CONSUMER_GROUP, self.namespace, name, {"spec": spec})

    async def get(self, name: str) -> dict[str, Any]:
        return await self.kube.get(CONSUMER_GROUP, self.namespace, name)

    async def until(self, name: str, **wanted: Any) -> dict[str, Any]:
        """Wait for fields of the status, and `ready`, `reset` (reasons) and `phase`."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            item = await self.get(name)
            status = item.get("status") or {}
            reasons = {each["type"]: each["reason"] for each in status.get("conditions", [])}
            seen = status | {
                "ready": reasons.get("Ready"),
                "reset": reasons.get("OffsetReset"),
                "paused": reasons.get("Paused"),
                "phase": status.get("lastReset", {}).get("phase"),
            }
            if all(seen.get(field) == value for field, value in wanted.items()):
                return item
            assert time.monotonic() < deadline, f"waited for {wanted}: {json.dumps(seen)}"
            await asyncio.sleep(0.05)

    async def events(self, name: str, *awaited: str) -> list[str]:
        """Wait for Events of these reasons, which follow the status, and return those of all."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            events = (await self.kube.list(EVENT, self.namespace)).items
            found = Counter(e["reason"] for e in events if e["regarding"]["name"] == name)
            if Counter(awaited) <= found:
                return sorted(found.elements())
            assert time.monotonic() < deadline, f"waited for {awaited}: {found}"
            await asyncio.sleep(0.05)


def manifest(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": CONSUMER_GROUP.api_version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@contextlib.asynccontextmanager
async def bench(
    kube: KubeClient, namespace: str, connect: Callable[[Any], GroupClient]
) -> AsyncIterator[Bench]:
    world = Bench(kube, namespace, connect)
    await world.start_operator()
    try:
        yield world
    finally:
        await world.stop_operator()


def fake_cluster() -> FakeGroups:
    cluster = FakeGroups({A0: 2, A1: 0}, {A0: 10, A1: 10})
    cluster.group("billing").committed |= {A0: 7, A1: 8}
    return cluster


def test_a_group_is_shown_reset_once_and_left_alone(
    run: Any, kube: KubeClient, namespace: str
) -> None:
    async def story() -> None:
        cluster = fake_cluster()
        group = cluster.group("billing")
        group.members = [Member("app", host="10.0.0.1", partitions=(A0, A1))]
        async with bench(kube, namespace, lambda _: cluster) as world:
            await world.make_cluster()
            await world.create("billing")
            item = await world.until("billing", ready="Ready", state="Stable", members=1, lag=5)
            assert item["spec"]["clusterName"] == "demo"
            assert item["status"]["observedGeneration"] == item["metadata"]["generation"]

            await world.patch("billing", offsetReset={"id": "one", "to": "Earliest"})
            item = await world.until("billing", phase="Waiting", reset="WaitingForEmptyGroup")
            assert "app (10.0.0.1)" in item["status"]["lastReset"]["message"]
            assert not cluster.commits
            group.members = []
            await world.until("billing", phase="Done", reset="Done", lag=18, state="Empty")
            assert group.committed == {A0: 2, A1: 0}

            group.committed = {A0: 9, A1: 9}
            await world.stop_operator()
            before = (await world.get("billing"))["status"]
            await world.start_operator()
            item = await world.until("billing", lag=2)
            assert item["status"]["lastReset"] == before["lastReset"]
            assert group.committed == {A0: 9, A1: 9}
            version = item["metadata"]["resourceVersion"]
            looks = len(cluster.looked)
            await passed(lambda: len(cluster.looked) > looks)
            assert (await world.get("billing"))["metadata"]["resourceVersion"] == version

            await world.patch("billing", offsetReset={"id": "two", "to": "Latest"})
            await world.until("billing", phase="Done", lag=0, pastResets=["one", "two"])
            await world.patch("billing", offsetReset={"id": "one", "to": "Earliest"})
            await world.until("billing", reset="AlreadyOver")
            assert len(cluster.commits) == 2
            expected = ["OffsetResetWaiting", "OffsetsReset", "OffsetsReset"]
            assert await world.events("billing", *expected) == expected

            columns = kubectl("get", "-n", namespace, "cgroup", "billing").splitlines()
            assert columns[1].split()[:6] == ["billing", "billing", "Empty", "0", "0", "Done"]
            await kube.delete(CONSUMER_GROUP, namespace, "billing")
            await passed(lambda: cluster.is_closed)
            assert group.committed == {A0: 10, A1: 10}

    run(story())


def test_a_reset_of_a_paused_group_waits(run: Any, kube: KubeClient, namespace: str) -> None:
    async def story() -> None:
        cluster = fake_cluster()
        async with bench(kube, namespace, lambda _: cluster) as world:
            await world.make_cluster()
            await world.create("billing", paused=True)
            await world.until("billing", ready="Ready", paused="AskedFor", lag=5)
            await world.patch("billing", offsetReset={"id": "one", "to": "Earliest"})
            generation = (await world.get("billing"))["metadata"]["generation"]
            await world.until("billing", observedGeneration=generation, phase=None)
            assert not cluster.commits
            await world.patch("billing", paused=False)
            await world.until("billing", phase="Done", paused=None, lag=18)

    run(story())


def test_what_cannot_be_followed_says_why(run: Any, kube: KubeClient, namespace: str) -> None:
    async def story() -> None:
        cluster = fake_cluster()
        async with bench(kube, namespace, lambda _: cluster) as world:
            await world.create("billing")
            await world.until("billing", ready="ClusterNotFound")
            await world.create("elsewhere", clusterName="other")
            await world.until("elsewhere", ready="ClusterNotFound")
            await world.make_cluster()
            await world.until("billing", ready="Ready", lag=5)
            await world.create("to-come")
            await world.until("to-come", ready="GroupNotFound", state="Absent", members=0)
            cluster.problems["stuck"] = "Broker: Coordinator not available"
            await world.create("stuck")
            await world.until("stuck", ready="CoordinatorNotAvailable")
            cluster.is_reachable = False
            await world.until("billing", ready="BrokersNotReachable", lag=5)
            cluster.is_reachable = True
            await world.until("billing", ready="Ready")
            reset = {"id": "x", "to": "Latest", "topics": [{"name": "nowhere"}]}
            await world.patch("billing", offsetReset=reset)
            await world.until("billing", phase="Failed", reset="UnknownTopic")
            await world.events("billing", "OffsetResetFailed")
            await kube.delete(LOG_CLUSTER, namespace, "demo")
            item = await world.until("billing", ready="ClusterNotFound", phase="Failed")
            assert "lag" not in item["status"]
            assert cluster.is_closed

    run(story())


def test_hundreds_of_groups_are_few_calls_and_no_writes_at_rest(
    run: Any, kube: KubeClient, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        cluster = fake_cluster()
        names = [f"group-{number:03}" for number in range(GROUPS)]
        for name in names:
            cluster.group(name).committed[A0] = 3
        async with bench(kube, namespace, lambda _: cluster) as world:
            await world.stop_operator()
            await world.make_cluster()
            for start in range(0, GROUPS, 50):
                batch = names[start : start + 50]
                await asyncio.gather(*(world.create(name, clusterName="demo") for name in batch))
            await world.start_operator()
            started, begun = time.process_time(), time.monotonic()
            await passed(lambda: world.sync.statuses.written == GROUPS)
            looks = len(cluster.looked)
            await passed(lambda: len(cluster.looked) > looks)
            # Writing takes longer than `refreshSeconds` on a busy machine: it has looked again.
            assert {len(asked) for asked in cluster.looked} == {GROUPS}, "all in one call"
            refreshed = (time.monotonic() - begun) / REFRESH_S
            assert len(cluster.looked) <= 1 + refreshed
            with capsys.disabled():
                cpu_s = time.process_time() - started
                print(f"\n{GROUPS} groups: {cpu_s:.2f} s of CPU", file=sys.stderr)
            assert world.sync.statuses.written == GROUPS
            metrics = GroupMetrics(world.sync.scope, statuses=lambda: 0, looks=world.sync.looks)
            lines = {metric.name: len(metric.samples) for metric in metrics.collect()}
            assert lines["kafka_consumergroup_lag_sum"] == GROUPS

    run(story())


def test_a_real_group_of_a_real_broker(
    run: Any, kube: KubeClient, namespace: str, tmp_path: Any
) -> None:
    cli = Cli(tmp_path / "cluster", *take_cluster_ports())
    bootstrap = f"127.0.0.1:{cli.port}"

    async def story() -> None:
        async with bench(
            kube, namespace, lambda _: KafkaGroupClient({"bootstrap.servers": bootstrap})
        ) as world:
            await world.make_cluster()
            await world.create("billing")
            await world.until("billing", ready="GroupNotFound")
            consumer = await asyncio.to_thread(consume_all, bootstrap, "shop", "billing", 100)
            reset = {"id": "again", "to": "Offset", "offset": 40}
            await world.patch("billing", offsetReset=reset)
            item = await world.until("billing", phase="Waiting", members=1, state="Stable")
            assert "stop the group's 1 members" in item["status"]["lastReset"]["message"]
            await asyncio.to_thread(consumer.close)
            await world.until("billing", phase="Done", lag=60, members=0, state="Empty")
            consumer = await asyncio.to_thread(consume_all, bootstrap, "shop", "billing", 60, 0)
            await asyncio.to_thread(consumer.close)

    try:
        settings = ("auto.create.topics.enable=true", "group.initial.rebalance.delay.ms=0")
        outcome = cli.up("--brokers", "1", *(part for each in settings for part in ("--set", each)))
        assert outcome.code == 0, outcome
        run(story())
    finally:
        cli.close()


def consume_all(
    bootstrap: str, topic: str, group: str, count: int, produced: int = 100
) -> Consumer:
    """Produce, read exactly so many records as a member of the group, and stay in it."""
    if produced:
        producer = Producer({"bootstrap.servers": bootstrap, "allow.auto.create.topics": True})
        for number in range(produced):
            producer.produce(topic, str(number))
        assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "app",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + DEADLINE_S
    records = 0
    while records < count:
        assert time.monotonic() < deadline, f"read {records} of {count}"
        record = consumer.poll(0.2)
        records += record is not None and record.error() is None
    extra = consumer.poll(0.2)
    assert extra is None or extra.error() is not None
    consumer.commit(asynchronous=False)
    return consumer


async def passed(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not check():  # noqa: ASYNC110 (what is looked at tells nobody)
            await asyncio.sleep(0.05)


def kubectl(*arguments: str) -> str:
    done = subprocess.run(
        ["kubectl", *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout
