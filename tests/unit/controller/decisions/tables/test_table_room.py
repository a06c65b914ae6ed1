"""No decision makes a table larger than every store takes: it is refused before it is taken."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_api_server import FakeApiServer

from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions.events import (
    AlterConfigs,
    ApplyTopicResources,
    CreatePartitions,
    DeleteTopics,
    ElectLeaders,
    FenceBroker,
    FenceReason,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.tables.lines import UNFINISHED_PREFIX
from fairlead_controller.decisions.tables.table_room import UNFINISHED_TOPICS_MAX
from fairlead_controller.stores.kubernetes import open_kubernetes_store
from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_model.resources.topic_manifest import TopicSpec
from fairlead_model.session.refusals import RefusalCode, RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

LONG_LIST = ",".join(["0:1"] * 8000)
"""Nearly the longest value that a config takes: 32 KB."""
LONG_CONFIGS = {
    "leader.replication.throttled.replicas": LONG_LIST,
    "follower.replication.throttled.replicas": LONG_LIST,
}


def alter(name: str, configs: dict[str, str], resource_type: int = 2) -> AlterConfigs:
    alterations = [
        {"name": config, "operation": 0, "value": value} for config, value in configs.items()
    ]
    resource: Any = {"resource_type": resource_type, "name": name, "alterations": alterations}
    return AlterConfigs({"resources": [resource], "validate_only": False, "incremental": True})


def delete(*names: str) -> DeleteTopics:
    topics: Any = [{"name": name, "topic_id": bytes(16)} for name in names]
    return DeleteTopics({"topics": topics})


def grow(names: list[str], count: int) -> CreatePartitions:
    topics: Any = [{"name": name, "count": count, "assignments": None} for name in names]
    return CreatePartitions({"topics": topics, "validate_only": False})


def play(
    story: Callable[[Controller, FakeApiServer], Awaitable[None]],
    make_registration: Any,
) -> None:
    """Run a story on a controller over an API server; its reign must last."""

    async def run() -> None:
        server = FakeApiServer()
        await server.start()
        client = KubeClient(
            Credentials(server.url, None), request_timeout_s=10.0, connect_timeout_s=5.0
        )
        store = await open_kubernetes_store(client, "ns", "demo")
        controller = await open_controller(store, now_ms=lambda: 0)
        reign = asyncio.create_task(controller.run())
        try:
            await controller.submit(ElectLeaders())
            for broker_id in range(3):
                reply = await controller.submit(RegisterBroker(make_registration(broker_id), ""))
                await controller.submit(UnfenceBroker(broker_id, reply["broker_epoch"]))
            await story(controller, server)
            assert not reign.done()
        finally:
            reign.cancel()
            await asyncio.gather(reign, return_exceptions=True)
            await store.close()
            await client.close()
            await server.stop()

    asyncio.run(run())


def test_topics_with_long_configs_go_to_another_table(
    make_registration: Any, make_create: Any, make_topic: Any
) -> None:
    async def story(controller: Controller, server: FakeApiServer) -> None:
        topics = [make_topic(f"t{number}", configs=LONG_CONFIGS) for number in range(30)]
        reply = await controller.submit(make_create(*topics))
        assert {topic["error_code"] for topic in reply["topics"]} == {0}
        assert len(controller.committed.image.topics_by_id) == 30

    play(story, make_registration)


def test_configs_that_no_longer_fit_are_refused_and_the_rest_goes_on(
    make_registration: Any, make_create: Any, make_topic: Any
) -> None:
    async def story(controller: Controller, server: FakeApiServer) -> None:
        await controller.submit(make_create(*(make_topic(f"t{number}") for number in range(30))))
        codes = []
        for number in range(30):
            reply = await controller.submit(alter(f"t{number}", LONG_CONFIGS))
            (resource,) = reply["resources"]
            codes.append(resource["error_code"])
        assert codes[0] == 0
        assert codes[-1] == RefusalCode.POLICY_VIOLATION
        assert "partitions-00000" in resource["error_message"]
        refused = codes.index(RefusalCode.POLICY_VIOLATION)
        image = controller.committed.image
        assert not image.topic(f"t{refused}").configs  # type: ignore[union-attr]
        # What needs no more room, and what goes to another table, is as it was.
        shorter = await controller.submit(alter("t0", dict.fromkeys(LONG_CONFIGS, "")))
        assert shorter["resources"][0]["error_code"] == 0
        again = await controller.submit(alter(f"t{refused}", LONG_CONFIGS))
        assert again["resources"][0]["error_code"] == 0
        made = await controller.submit(make_create(make_topic("new", configs=LONG_CONFIGS)))
        assert made["topics"][0]["error_code"] == 0
        broker = controller.committed.image.brokers[0]
        await controller.submit(FenceBroker(0, broker.broker_epoch, FenceReason.SESSION_EXPIRED))
        deleted = await controller.submit(delete(*(f"t{number}" for number in range(30))))
        assert {topic["error_code"] for topic in deleted["topics"]} == {0}

    play(story, make_registration)


def test_a_topic_resource_that_does_not_fit_is_told_and_others_are_applied(
    make_registration: Any, make_create: Any, make_topic: Any
) -> None:
    async def story(controller: Controller, server: FakeApiServer) -> None:
        await controller.submit(make_create(*(make_topic(f"t{number}") for number in range(30))))
        specs = [
            TopicSpec(f"r{number}", f"t{number}", 1, 1, configs=LONG_CONFIGS)
            for number in range(30)
        ]
        new = TopicSpec("new", "new", 1, 1)
        reply = await controller.submit(ApplyTopicResources(apply=(*specs, new)))
        results = reply["results"]
        assert results["r0"]["state"] == "ok"
        assert results["r29"]["state"] == "refused"
        assert "table partitions-00000 could come to take" in results["r29"]["message"]
        assert results["new"]["state"] == "ok"

    play(story, make_registration)


def test_the_table_of_the_cluster_is_bounded_too(make_registration: Any) -> None:
    """By dynamic configs and by brokers; those that are there come back all the same."""
    padded = " " * 380 + "5000000"
    names = ("retention.bytes", "retention.ms", "segment.bytes", "flush.interval.ms", "roll.ms")
    configs = {f"log.{name}": padded for name in names}

    async def story(controller: Controller, server: FakeApiServer) -> None:
        for broker_id in range(3, 1000):
            try:
                asking = make_registration(broker_id)
                await controller.submit(RegisterBroker(asking, ""))
                reply = await controller.submit(alter(str(broker_id), configs, 4))
                (resource,) = reply["resources"]
                if resource["error_code"]:
                    assert resource["error_code"] == RefusalCode.POLICY_VIOLATION
                    assert f"dynamic configs of broker {broker_id}" in resource["error_message"]
            except RefusedError as refusal:
                assert refusal.code is RefusalCode.POLICY_VIOLATION
                assert f"with broker {broker_id}, table cluster" in refusal.message
                break
        else:
            pytest.fail("brokers come without bound")
        assert resource["error_code"] == RefusalCode.POLICY_VIOLATION
        again = make_registration(0, start_id="again", host_name="h" * 2000)
        assert (await controller.submit(RegisterBroker(again, "")))["broker_epoch"] > broker_id
        for name in ("3", "4", "5"):
            reply = await controller.submit(alter(name, dict.fromkeys(configs, "5000000"), 4))
            assert reply["resources"][0]["error_code"] == 0
        asking = make_registration(broker_id)
        assert await controller.submit(RegisterBroker(asking, ""))

    play(story, make_registration)


def test_configs_of_groups_are_bounded_and_stay(make_registration: Any) -> None:
    """Group ids are any text: what parts keys from lines in a table must not stand in a key."""
    times = ("session.timeout", "heartbeat.interval", "assignment.interval")
    values = dict(zip(times, ("50000", "6000", "0"), strict=True))
    padded = {f"consumer.{name}.ms": " " * 390 + value for name, value in values.items()}
    plain = {name: value.strip() for name, value in padded.items()}

    def alter_groups(numbers: Iterable[int], configs: dict[str, str]) -> AlterConfigs:
        calls = [alter(f"a group\n{number}", configs, 32).call for number in numbers]
        resources = [resource for call in calls for resource in call["resources"]]
        return AlterConfigs({**calls[0], "resources": resources})

    async def story(controller: Controller, server: FakeApiServer) -> None:
        answers: list[Any] = []
        for first in range(0, 2000, 100):
            reply = await controller.submit(alter_groups(range(first, first + 100), padded))
            answers += reply["resources"]
            if answers[-1]["error_code"]:
                break
        refused = [each for each in answers if each["error_code"]]
        assert {each["error_code"] for each in refused} == {RefusalCode.POLICY_VIOLATION}
        assert "with these configs of a group, table cluster" in refused[0]["error_message"]
        kept = {each["name"]: padded for each in answers if not each["error_code"]}
        assert controller.committed.image.group_configs == kept
        reply = await controller.submit(alter_groups(range(10), plain))
        assert {each["error_code"] for each in reply["resources"]} == {0}
        last = int(refused[-1]["name"].split()[-1])
        reply = await controller.submit(alter_groups([last], plain))
        assert reply["resources"][0]["error_code"] == 0, "there is room again"

    play(story, make_registration)


def test_an_absurd_registration_is_refused(make_registration: Any) -> None:
    async def story(controller: Controller, server: FakeApiServer) -> None:
        for fields in ({"rack": "r" * 10_000}, {"directory_id": "d" * 100}):
            with pytest.raises(RefusedError, match="fit"):
                await controller.submit(RegisterBroker(make_registration(9, **fields), ""))

    play(story, make_registration)


def test_topics_that_grow_at_once_are_written_in_batches_that_fit(
    make_registration: Any, make_create: Any, make_topic: Any
) -> None:
    count = UNFINISHED_TOPICS_MAX + 100
    names = [f"t{number}" for number in range(count)]

    async def story(controller: Controller, server: FakeApiServer) -> None:
        await controller.submit(make_create(*map(make_topic, names)))
        most = 0
        store = server._store

        async def counted(path: str, manifest: Any, old: Any) -> Any:
            nonlocal most
            most = max(most, manifest["spec"]["lines"].count(UNFINISHED_PREFIX))
            return await store(path, manifest, old)

        server._store = counted  # type: ignore[method-assign]
        middle = count // 2
        requests = [grow(names[:middle], 2), grow(names[middle:], 2), grow(names[:middle], 3)]
        replies = await asyncio.gather(*map(controller.submit, requests))
        codes = {topic["error_code"] for reply in replies for topic in reply["topics"]}
        assert codes == {0}
        assert middle <= most <= UNFINISHED_TOPICS_MAX
        reply = await controller.submit(grow(names, 4))
        told = [topic["error_code"] for topic in reply["topics"]]
        assert told.count(0) == UNFINISHED_TOPICS_MAX
        assert "ask again for the rest" in reply["topics"][-1]["error_message"]
        # What makes no line longer than was counted may touch any number of topics.
        reply = await controller.submit(alter("", {"min.insync.replicas": "2"}, 4))
        assert reply["resources"][0]["error_code"] == 0

    play(story, make_registration)


def test_a_request_names_no_more_topics_than_a_decision_takes(make_registration: Any) -> None:
    async def story(controller: Controller, server: FakeApiServer) -> None:
        with pytest.raises(RefusedError, match="10001 topics in one request"):
            await controller.submit(delete(*map(str, range(10_001))))

    play(story, make_registration)
