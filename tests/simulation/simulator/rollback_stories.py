"""Tables are restored from a copy: no controller decides on them, and nothing is lost or deleted.

Most stories end with the newest tables restored, after which all must be well again.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from simulator.churn import topic_body
from simulator.opening import SAFE
from simulator.store import SimStore
from simulator.virtual_loop import Process

from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.stores.metadata_rewrite import (
    Confirmed,
    choose_confirmed_epoch,
    confirm_metadata,
)
from fairlead_model.metadata_seen import MetadataSeen

if TYPE_CHECKING:
    from simulator.control_plane import ControllerHost
    from simulator.store import Tables
    from simulator.world import World


def reigning(world: World) -> ControllerHost | None:
    return next((each for each in world.controllers.values() if each.controller_of_now), None)


async def move_a_leader(world: World) -> None:
    """Kill a leader and bring it back in sync: another replica leads in a higher epoch."""
    await world.progress()
    old = world.leader()
    old.kill()
    await world.until(lambda: world.record().leader not in (-1, old.broker_id))
    old.start()
    await world.until(lambda: old.broker_id in world.record().isr)
    await world.progress()


async def end_controllers(world: World) -> None:
    for each in world.controllers.values():
        each.kill()


def put_back(world: World, copy: Tables, *names: str) -> Tables:
    """Restore tables; return the newest ones."""
    newest = dict(world.store.tables)
    world.note("somebody puts back %s", ", ".join(names or sorted(copy)))
    world.store.put_back(copy, *names)
    world.checker.reigning_epoch = max(
        table.controller_epoch for table in world.store.tables.values()
    )
    return newest


async def nobody_decides(world: World, words: str) -> None:
    """Wait until the reign is over, with the reason; then for a while, in which none begins."""

    def is_told() -> bool:
        return any(words in each.last_words for each in world.controllers.values())

    await world.until(is_told)
    await world.until(lambda: reigning(world) is None)
    before = lines_of_partitions(world)
    await asyncio.sleep(6)
    assert reigning(world) is None, "somebody decides on tables that went back in time"
    assert lines_of_partitions(world) == before, "something was deleted or changed"


def lines_of_partitions(world: World) -> dict[str, dict[str, str]]:
    return {
        name: dict(table.lines) for name, table in world.store.tables.items() if name != "cluster"
    }


async def all_is_put_right(world: World, newest: Tables) -> None:
    put_back(world, newest)
    await world.until(lambda: reigning(world) is not None)
    await world.progress()


async def a_table_goes_back_under_a_controller(world: World) -> None:
    await world.progress()
    copy = dict(world.store.tables)
    await move_a_leader(world)
    newest = put_back(world, copy, "partitions-00000")
    given = lines_of_partitions(world)
    world.elect_preferred()
    follower = world.followers()[0]
    follower.kill()
    await nobody_decides(world, "went back to write")
    assert lines_of_partitions(world) == given
    follower.start()
    await all_is_put_right(world, newest)


async def a_table_went_back_while_no_controller_was_there(world: World) -> None:
    """The leader has changed since the copy was made, in the same reign."""
    await world.progress()
    copy = dict(world.store.tables)
    await move_a_leader(world)
    await end_controllers(world)
    newest = put_back(world, copy, "partitions-00000")
    await nobody_decides(world, "epoch")
    await world.progress()
    await all_is_put_right(world, newest)


async def a_table_of_an_earlier_reign_comes_back(world: World) -> None:
    await world.progress()
    copy = dict(world.store.tables)
    await end_controllers(world)
    await world.until(lambda: reigning(world) is not None)
    await move_a_leader(world)
    await end_controllers(world)
    newest = put_back(world, copy, "partitions-00000")
    await nobody_decides(world, "table partitions-00000 went back in time")
    await world.progress()
    await all_is_put_right(world, newest)


async def all_tables_go_back(world: World) -> None:
    """They are from an earlier reign; the next epoch would be one that brokers have followed."""
    await world.progress()
    copy = dict(world.store.tables)
    await end_controllers(world)
    await world.until(lambda: reigning(world) is not None)
    await move_a_leader(world)
    await end_controllers(world)
    await world.until(lambda: reigning(world) is not None)
    await end_controllers(world)
    newest = put_back(world, copy)
    await nobody_decides(world, "epoch")
    await world.progress()
    await all_is_put_right(world, newest)


async def all_tables_go_back_and_all_brokers_restart(world: World) -> None:
    await world.progress()
    copy = dict(world.store.tables)
    await move_a_leader(world)
    await end_controllers(world)
    for broker in world.brokers.values():
        broker.kill()
    newest = put_back(world, copy)
    for broker in world.brokers.values():
        broker.start()
    await nobody_decides(world, "epoch")
    await all_is_put_right(world, newest)


async def the_table_of_the_cluster_goes_back(world: World) -> None:
    """Since the copy, only producer ids were assigned; a person confirms the copy."""
    await world.progress()
    copy = dict(world.store.tables)
    given = [await ask_for_producer_ids(world) for _ in range(3)]
    await brokers_remember(world)
    await end_controllers(world)
    put_back(world, copy, "cluster")
    await nobody_decides(world, "writes of the tables")
    await somebody_confirms(world)
    again = await ask_for_producer_ids(world)
    assert again > max(given), "producer ids are handed out twice"
    await world.progress()


async def ids_are_given_out_after_a_rollback_of_a_moment(world: World) -> None:
    """The time after the last ids is so short that no broker has heard of that write."""
    await world.progress()
    copy = dict(world.store.tables)
    given = await ask_for_producer_ids(world)
    for broker in world.brokers.values():
        broker.kill()
    await end_controllers(world)
    put_back(world, copy, "cluster")
    for broker in world.brokers.values():
        broker.start()
    await world.until(lambda: reigning(world) is not None)
    again = await ask_for_producer_ids(world)
    assert again > given, "producer ids are handed out twice"
    await world.progress()


async def all_tables_go_back_and_only_disks_remember(world: World) -> None:
    """Since the copy, nothing has happened that a log or a registration would show."""
    await world.progress()
    copy = dict(world.store.tables)
    given = [await ask_for_producer_ids(world) for _ in range(3)]
    await brokers_remember(world)
    await end_controllers(world)
    for broker in world.brokers.values():
        broker.kill()
    put_back(world, copy)
    await reign_without_brokers(world, times=4)
    for broker in world.brokers.values():
        broker.start()
    await nobody_decides(world, "writes of the tables")
    await somebody_confirms(world)
    again = await ask_for_producer_ids(world)
    assert again > max(given), "producer ids are handed out twice"


async def an_old_copy_is_confirmed(world: World) -> None:
    """A leader has changed twice since the copy, and records acknowledged since have to stay."""
    await world.progress()
    copy = dict(world.store.tables)
    await move_a_leader(world)
    await move_a_leader(world)
    await brokers_remember(world)
    await end_controllers(world)
    put_back(world, copy)
    await nobody_decides(world, "epoch")
    await somebody_confirms(world)
    await world.progress()


async def a_copy_is_confirmed_and_who_missed_records_is_back_first(world: World) -> None:
    """In the copy it is in sync, and it was killed before the records acknowledged since."""
    await world.progress()
    copy = dict(world.store.tables)
    late = world.followers()[0]
    late.kill()
    await world.until(lambda: late.broker_id not in world.record().isr)
    await world.progress()
    await end_controllers(world)
    others = [broker for broker in world.brokers.values() if broker is not late]
    for broker in others:
        broker.kill()
    put_back(world, copy)
    await confirm(world, "somebody")
    late.start()
    await asyncio.sleep(4)
    for broker in others:
        broker.start()
    await begins_anew(world)
    await world.progress()


async def a_copy_from_before_a_move_is_confirmed(world: World) -> None:
    """The old replica has deleted the partition, and is back first; the new ones follow."""
    await world.progress()
    once, *others = world.record().replicas
    await reassign(world, [once])
    await world.progress()
    copy = dict(world.store.tables)
    await reassign(world, others)
    await world.until(lambda: world.brokers[once].log(world.key()) is None)
    await world.progress()
    await end_controllers(world)
    for broker in world.brokers.values():
        broker.kill()
    put_back(world, copy)
    await confirm(world, "somebody")
    world.brokers[once].start()
    await asyncio.sleep(4)
    for broker_id in others:
        world.brokers[broker_id].start()
    await begins_anew(world)
    assert set(world.record().replicas) == {once, *others}
    await world.progress()


async def reassign(world: World, replicas: list[int]) -> None:
    """Reassign the partition, and wait until no other broker has it."""
    wanted = {"topic": SAFE, "index": 0, "replicas": replicas}
    body = {"partitions": [wanted], "allow_replication_factor_change": True}
    world.tell_controller("alter_partition_reassignments", body)
    await world.until(lambda: world.record().replicas == tuple(replicas))


async def a_copy_from_before_a_confirmation_is_confirmed(world: World) -> None:
    """The second time, epochs start from the same numbers: brokers know that they are used."""
    await world.progress()
    copy = dict(world.store.tables)
    for _ in range(2):
        await move_a_leader(world)
        await brokers_remember(world)
        await end_controllers(world)
        put_back(world, copy)
        await nobody_decides(world, "epoch")
        await somebody_confirms(world)
        await world.progress()


async def two_confirm_at_once(world: World) -> None:
    await world.progress()
    copy = dict(world.store.tables)
    await move_a_leader(world)
    await brokers_remember(world)
    await end_controllers(world)
    put_back(world, copy)
    await nobody_decides(world, "epoch")
    both = [confirm(world, name) for name in ("one", "another")]
    ends = await asyncio.gather(*both, return_exceptions=True)
    assert all(isinstance(end, Confirmed | StoreError) for end in ends), ends
    if not any(isinstance(end, Confirmed) for end in ends):
        # Each has sealed a table that the other was about to seal; a retry succeeds.
        await confirm(world, "one again")
    await begins_anew(world)
    await world.progress()


async def brokers_remember(world: World) -> None:
    """Wait until every broker's disk has what has been written by now."""
    controller = reigning(world)
    assert controller is not None
    reign = controller.controller_of_now
    assert reign is not None
    seen = MetadataSeen(reign.committed.controller_epoch, reign.writes)
    await world.until(
        lambda: all(broker.disk.metadata_seen >= seen for broker in world.brokers.values())
    )


async def reign_without_brokers(world: World, *, times: int) -> None:
    """Let controllers take over repeatedly; each raises the epoch."""
    for _ in range(times):
        await world.until(lambda: reigning(world) is not None)
        await end_controllers(world)


async def confirm(world: World, name: str) -> Confirmed:
    store = SimStore(world.store, Process(world.loop, name))
    tables = await store.load()
    epoch = choose_confirmed_epoch(tables)
    world.checker.is_confirmed = True
    confirmed = await confirm_metadata(store, tables, epoch)
    # Only now: until it has sealed the tables, another one may write in a lower epoch.
    world.checker.on_reign(epoch)
    return confirmed


async def somebody_confirms(world: World) -> None:
    world.note("somebody confirms the metadata")
    await confirm(world, "somebody")
    await begins_anew(world)


async def begins_anew(world: World) -> None:
    await world.until(lambda: reigning(world) is not None)
    await world.until(lambda: world.record().leader != -1)


async def the_table_of_the_cluster_comes_back_from_an_earlier_reign(world: World) -> None:
    await world.progress()
    copy = dict(world.store.tables)
    await end_controllers(world)
    await world.until(lambda: reigning(world) is not None)
    await ask_for_producer_ids(world)
    await end_controllers(world)
    newest = put_back(world, copy, "cluster")
    await nobody_decides(world, "table cluster went back in time")
    await all_is_put_right(world, newest)


async def the_table_with_the_header_goes_back(world: World) -> None:
    """A table from before a topic's creation is restored; its partitions are in other tables."""
    await world.progress()
    copy = dict(world.store.tables)
    ids = list(world.brokers)
    topic = topic_body("wide", [ids[:2] for _ in range(6)], {})
    body = {
        "topics": [topic],
        "validate_only": False,
        "default_partitions": 1,
        "default_replication_factor": 2,
    }
    world.tell_controller("create_topics", body)
    await world.until(lambda: topics_of(world, "wide") == ["live"])
    assert len(world.store.tables) > len(copy)
    await end_controllers(world)
    newest = put_back(world, copy, "partitions-00000")
    await nobody_decides(world, "a table is older than the others")
    await all_is_put_right(world, newest)
    await world.until(lambda: topics_of(world, "wide") == ["live"])


def topics_of(world: World, name: str) -> list[str]:
    """Return the states of the topics of a name in the store."""
    headers = [
        json.loads(line)
        for table in world.store.tables.values()
        for key, line in table.lines.items()
        if key.startswith("topic/")
    ]
    return [header["state"] for header in headers if header["name"] == name]


async def ask_for_producer_ids(world: World) -> int:
    broker = next(each for each in world.brokers.values() if each.running is not None)
    assert broker.running is not None
    while True:
        call = broker.running.session.call("allocate_producer_ids", {}, timeout_ms=2000)
        answers: list[Any] = await asyncio.gather(call, return_exceptions=True)
        if isinstance(answers[0], dict):
            return int(answers[0]["first_producer_id"])
        await asyncio.sleep(0.2)
