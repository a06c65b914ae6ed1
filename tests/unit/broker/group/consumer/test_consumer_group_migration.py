"""Groups that change their protocol, and members of both protocols in one group (KIP-848)."""

from dataclasses import replace

import pytest
from consumer_group_driver import (
    SETTINGS,
    ConsumerGroupDriver,
    Held,
    Host,
    held,
    partitions,
    subscription,
)
from group_driver import GroupDriver

from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.consumer.classic_members import known_partitions
from fairlead_broker.group.consumer.consumer_group import ConsumerGroup
from fairlead_broker.group.consumer.migration_policy import MigrationPolicy
from fairlead_broker.group.consumer.protocol_migration import upgraded
from fairlead_broker.group.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from fairlead_broker.group.group_types import GroupState, MigratingMember
from fairlead_broker.group.records.classic_records import MemberRecord, decode_group_value
from fairlead_broker.group.subscription import subscribed_topics
from fairlead_broker.limits import MEMBER_TOPICS_MAX
from fairlead_wire.errors import ErrorCode, KafkaError


def classic_member(
    member_id: str, assigned: dict[str, list[int]], *, user_data: bytes = b""
) -> MigratingMember:
    assignment = encode_assignment(1, assigned)
    if user_data:
        assignment = assignment[:-4] + len(user_data).to_bytes(4, "big") + user_data
    metadata = subscription("t")
    record = MemberRecord(member_id, None, "c", "/h", 10_000, 20_000, metadata, assignment)
    return MigratingMember(record, (("range", metadata),))


def upgraded_driver() -> ConsumerGroupDriver:
    """A classic group of `x` and `y` in generation 7 that `a` has just joined by KIP-848."""
    driver = ConsumerGroupDriver(t=4)
    members = [classic_member("x", {"t": [0, 1]}), classic_member("y", {"t": [2, 3]})]
    records = upgraded("consumer", 7, members, driver.host.image)
    driver.group = ConsumerGroup.from_classic("g", records, driver.host)
    driver.join("a")
    return driver


def test_members_keep_what_they_had_and_the_newcomer_raises_the_epoch() -> None:
    driver = upgraded_driver()
    assert driver.held("x") == {"t": [0, 1]}
    assert (driver.epoch("x"), driver.epoch("y"), driver.epoch("a")) == (7, 7, 8)
    (batch,) = driver.batches
    assert batch[0] == (b"\0\2\0\1g", None)
    driver.require_replayable()
    # Both are told to join again, and give something up.
    for member_id in "xy":
        code = driver.group.heartbeat(member_id, 7, None, now_ms=driver.now_ms)
        assert code is ErrorCode.REBALANCE_IN_PROGRESS
    joined = driver.classic_join("again-x", "x", owned={"t": [0, 1]})
    assert (joined.error, joined.leader, joined.members) == (ErrorCode.NONE, "", ())
    assert (joined.protocol_name, joined.protocol_type) == ("range", "consumer")


def test_cooperative_members_give_up_before_others_get() -> None:
    driver = upgraded_driver()
    for member_id, owned in (("x", [0, 1]), ("y", [2, 3])):
        joined = driver.classic_join(f"1-{member_id}", member_id, owned={"t": owned})
        synced = driver.classic_sync(member_id, joined.generation_id)
        assert synced.error is ErrorCode.NONE
        kept = decode_assignment(synced.assignment).partitions
        assert set(kept.get("t", [])) <= set(owned)
        assert kept == driver.held(member_id)
        if joined.generation_id == 7:
            # It has something to give up: it is told so until it has joined without that.
            code = driver.group.heartbeat(member_id, 7, None, now_ms=driver.now_ms)
            assert code is ErrorCode.REBALANCE_IN_PROGRESS
            assert driver.beat("a", 8).assigned is None
            assert driver.classic_join(f"2-{member_id}", member_id, owned=kept).generation_id == 8
    driver.settle("a")
    assert len(driver.held("a")["t"]) == 1
    driver.require_replayable()


def test_an_eager_member_has_given_up_everything_when_it_joins() -> None:
    driver = upgraded_driver()
    for member_id in "xy":
        joined = driver.classic_join(f"1-{member_id}", member_id)
        assert joined.generation_id == 8
    driver.settle("a")
    assert sorted(len(driver.held(each)["t"]) for each in "axy") == [1, 1, 2]


def test_a_member_of_another_generation_is_told_so() -> None:
    driver = upgraded_driver()
    joined = driver.classic_join("1", "x")
    assert driver.classic_sync("x", 7).error is ErrorCode.ILLEGAL_GENERATION
    assert driver.classic_sync("z", 8).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.classic_sync("a", 8).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.group.heartbeat("x", 7, None, now_ms=0) is ErrorCode.ILLEGAL_GENERATION
    assert driver.group.heartbeat("x", joined.generation_id, None, now_ms=0) is ErrorCode.NONE
    assert driver.classic_sync("y", 7).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    "wish",
    [
        {"protocols": ("sticky",)},
        {"protocols": ()},
        {"protocol_type": "connect"},
        {"metadata": b"\0\1"},
    ],
)
def test_a_member_that_shares_no_protocol_is_refused(wish: dict[str, object]) -> None:
    driver = upgraded_driver()
    for waiter, member_id in (("1", ""), ("2", "x")):
        joined = driver.classic_join(waiter, member_id, **wish)  # type: ignore[arg-type]
        assert (joined.error, joined.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert set(driver.state.members) == {"x", "y", "a"}


def test_no_classic_member_joins_where_that_is_switched_off() -> None:
    driver = upgraded_driver()
    driver.host.settings = replace(SETTINGS, migration_policy=MigrationPolicy.DISABLED)
    assert driver.classic_join("1").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_is_given_its_id_first() -> None:
    driver = upgraded_driver()
    # As Kafka does before it looks at what the member says of its topics.
    first = driver.classic_join("1", needs_id=True, metadata=b"")
    assert (first.error, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "new-1")
    assert driver.classic_join("2", "new-1", needs_id=True).error is ErrorCode.NONE
    assert "new-1" in driver.state.members


@pytest.mark.parametrize("silent", ["heartbeat", "join", "sync"])
def test_a_classic_member_that_is_slow_is_fenced(silent: str) -> None:
    driver = upgraded_driver()
    driver.classic_join("1", "x")
    if silent != "sync":
        driver.classic_sync("x", 8)
    if silent == "join":
        driver.join("b")
        code = driver.group.heartbeat("x", 8, None, now_ms=driver.now_ms)
        assert code is ErrorCode.REBALANCE_IN_PROGRESS
    limit_ms = 20_000 if silent == "heartbeat" else 10_000
    driver.pass_time(limit_ms - 1)
    assert "x" in driver.state.members
    driver.pass_time(1)
    assert "x" not in driver.state.members


def test_a_classic_member_learns_that_its_topic_has_grown() -> None:
    driver = upgraded_driver()
    for member_id in "xy":
        driver.classic_join(f"1-{member_id}", member_id)
    driver.settle("a")
    assert driver.group.heartbeat("x", 8, None, now_ms=0) is ErrorCode.NONE
    driver.host.set_topics({"t": 5})
    assert driver.group.heartbeat("x", 8, None, now_ms=0) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.classic_join("2", "x").generation_id == 9


def test_what_a_classic_member_waits_for_and_is_free_brings_it_back() -> None:
    driver = ConsumerGroupDriver(t=2)
    driver.join("a")
    joined = driver.classic_join("1")
    member_id = joined.member_id
    assert driver.group.heartbeat(member_id, 3, None, now_ms=0) is ErrorCode.NONE
    driver.beat("a", 2, owned={"t": [0, 1]})
    driver.beat("a", 2, owned=driver.held("a"))
    code = driver.group.heartbeat(member_id, 3, None, now_ms=0)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
    driver.classic_join("2", member_id)
    assert len(driver.held(member_id)["t"]) == 1


def test_commits_of_classic_members_are_checked_by_generation() -> None:
    driver = upgraded_driver()
    assert driver.check_commit("x", 7, {"t": [0]}, version=5) is ErrorCode.NONE
    assert driver.check_commit("x", 8, {"t": [0]}, version=5) is ErrorCode.ILLEGAL_GENERATION
    assert driver.check_commit("x", 6, {"t": [0]}, version=5) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("protocol_type", "members"),
    [
        ("connect", [classic_member("x", {"t": [0]})]),
        ("consumer", [classic_member("x", {"t": [0]}, user_data=b"sticky")]),
        ("consumer", [classic_member("x", {"t": [0]}), classic_member("y", {"t": [0]})]),
        (
            "consumer",
            [
                MigratingMember(
                    MemberRecord("x", None, "c", "/h", 1, 1, b"nonsense", b""), (("range", b""),)
                )
            ],
        ),
    ],
)
def test_a_group_that_would_lose_something_stays_what_it_is(
    protocol_type: str, members: list[MigratingMember]
) -> None:
    with pytest.raises(KafkaError) as caught:
        upgraded(protocol_type, 3, members, Host({"t": 2}).image)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_who_reads_on_through_a_rebalance_keeps_what_it_owns() -> None:
    """G12: a rebalance that was broken off has forgotten what cooperative members were given."""
    classic = GroupDriver()
    held_by = {"x": {"t": [0, 1]}, "y": {"t": [2, 3]}}

    def join(member_id: str, owned: Held | None, waiter: str) -> None:
        metadata = subscription("t", owned=owned)
        known = member_id if member_id in {each.member_id for each in classic.group.members} else ""
        protocols = (("cooperative-sticky", metadata),)
        classic.join(waiter, known, protocols=protocols, new_id=member_id)

    join("x", None, "x1")
    join("y", None, "y1")
    join("x", None, "x2")
    parts = {each: encode_assignment(1, mine) for each, mine in held_by.items()}
    classic.sync("s", classic.group.leader, classic.group.generation_id, parts)
    classic.commit()
    join("z", None, "z1")
    for member_id, mine in held_by.items():
        join(member_id, mine, f"{member_id}3")
    assert classic.state.name == GroupState.COMPLETING_REBALANCE.name
    classic.leave(("z", None))
    assert classic.state.name == GroupState.PREPARING_REBALANCE.name

    driver = ConsumerGroupDriver(t=4)
    members = classic.group.migrating_members()
    records = upgraded("consumer", classic.group.generation_id, members, driver.host.image)
    driver.group = ConsumerGroup.from_classic("g", records, driver.host)
    assert driver.join("a").assigned == frozenset()
    assert {each: driver.held(each) for each in held_by} == held_by


def test_who_has_yet_to_give_something_up_keeps_it_while_the_group_goes_to_and_fro() -> None:
    """G12: the only member of the new protocol goes, and is back before others have joined."""
    driver = upgraded_driver()
    read = {"x": {"t": [0, 1]}, "y": {"t": [2, 3]}}
    for member_id, mine in read.items():
        driver.classic_join(f"1-{member_id}", member_id, owned=mine)
    pending = {each: driver.state.current(each).pending_revocation for each in read}
    assert sum(map(len, pending.values())) == 1
    driver.beat("a", -1)
    assert driver.downgrade is not None

    classic = ClassicGroup.from_record(
        "g", driver.downgrade.record, initial_rebalance_delay_ms=0, size_max=10, now_ms=0
    )
    classic.take_protocols(driver.downgrade.protocols)
    generation, members = classic.generation_id, classic.migrating_members()
    records = upgraded("consumer", generation, members, driver.host.image)
    driver.group = ConsumerGroup.from_classic("g", records, driver.host)
    assert driver.join("a").assigned == frozenset()
    assert {each: driver.held(each) for each in read} == read


def test_who_has_not_been_told_what_to_give_up_keeps_it() -> None:
    """G12: the group is stable once the leader's request is written, which others have yet to hear.

    A partition that moves is with nobody then; its owner would give it up and join again.
    """
    metadata = subscription("t", owned={"t": [0, 1, 2, 3]})
    protocols = (("cooperative-sticky", metadata),)
    x, y = (
        MigratingMember(classic_member(name, mine).record._replace(subscription=data), protocols)
        for name, mine, data in (
            ("x", {"t": [0, 1]}, metadata),
            ("y", {"t": [3]}, subscription("t")),
        )
    )
    records = upgraded("consumer", 3, [x, y], Host({"t": 4}).image)
    targets = {name: held(value) for _, value, name in records if isinstance(value, frozenset)}
    assert targets == {"x": {"t": [0, 1, 2]}, "y": {"t": [3]}}


def test_what_two_members_say_they_own_is_with_one_of_them() -> None:
    assigned = classic_member("x", {"t": [0]})
    claims = [{"t": [0, 1]}, {"t": [1]}]
    others = [
        MigratingMember(
            MemberRecord(name, None, "c", "/h", 10_000, 20_000, metadata, b""),
            (("range", metadata),),
        )
        for name, metadata in zip("yz", (subscription("t", owned=c) for c in claims), strict=True)
    ]
    records = upgraded("consumer", 3, [*others, assigned], Host({"t": 2}).image)
    targets = {name: held(value) for _, value, name in records if isinstance(value, frozenset)}
    assert targets == {"y": {"t": [1]}, "z": {}, "x": {"t": [0]}}


def test_topics_that_are_gone_are_left_out_of_what_members_keep() -> None:
    image = Host({"t": 1}).image
    assert known_partitions({"t": [0, 1], "gone": [0]}, image) == partitions({"t": [0]})


@pytest.mark.parametrize("way", ["leaves", "is removed", "is fenced"])
def test_the_last_one_of_the_new_protocol_takes_the_group_back(way: str) -> None:
    driver = upgraded_driver()
    for member_id in "xy":
        driver.classic_join(f"1-{member_id}", member_id)
        driver.classic_sync(member_id, 8)
    driver.settle("a")
    if way == "leaves":
        driver.beat("a", -1)
    elif way == "is removed":
        assert driver.leave(("a", None)) == [ErrorCode.NONE]
    else:
        driver.pass_time(15_000)
        for member_id in "xy":
            driver.group.heartbeat(member_id, 8, None, now_ms=driver.now_ms)
        driver.pass_time(15_000)
        for member_id in "xy":
            driver.group.heartbeat(member_id, 8, None, now_ms=driver.now_ms)
        driver.pass_time(15_000)
    assert driver.downgrade is not None
    value = decode_group_value(driver.downgrade.record)
    assert (value.generation_id, value.protocol, value.leader) == (8, "range", None)
    assert {each.member_id for each in value.members} == {"x", "y"}
    assigned = [decode_assignment(each.assignment).partitions for each in value.members]
    assert all(set(each) <= {"t"} for each in assigned)
    keys = {key[:2] for key in driver.log}
    assert keys == {b"\0\2"}
    # They are told to join again, and commit until then what they have read.
    group = ClassicGroup.from_record(
        "g", driver.downgrade.record, initial_rebalance_delay_ms=0, size_max=10, now_ms=0
    )
    group.on_loaded(now_ms=0, now_wall_ms=0)
    for member_id in "xy":
        code = group.heartbeat(member_id, 8, None, now_ms=0)
        assert code is ErrorCode.REBALANCE_IN_PROGRESS
        assert group.check_commit(member_id, 8, None, now_ms=0) is ErrorCode.NONE
    assert group.generation_id == 8


def test_who_goes_back_is_known_by_all_that_it_joined_with() -> None:
    """Whoever comes next may support another one of them."""
    driver = upgraded_driver()
    for member_id in "xy":
        driver.classic_join(f"1-{member_id}", member_id, protocols=("range", "roundrobin"))
    driver.beat("a", -1)
    assert driver.downgrade is not None
    names = {
        member_id: [name for name, _ in protocols]
        for member_id, protocols in driver.downgrade.protocols.items()
    }
    assert names == {"x": ["range", "roundrobin"], "y": ["range", "roundrobin"]}
    group = ClassicGroup.from_record(
        "g", driver.downgrade.record, initial_rebalance_delay_ms=0, size_max=10, now_ms=0
    )
    group.take_protocols(driver.downgrade.protocols)
    assert group.members.have_common((("roundrobin", b""),))
    assert not group.members.have_common((("sticky", b""),))


def test_a_protocol_that_only_its_clients_know_keeps_nobody_from_going_back() -> None:
    """A member's first may be of bytes that are no subscription, where another one was agreed."""
    driver = ConsumerGroupDriver(t=2)
    odd = classic_member("x", {"t": [0, 1]})
    odd = odd._replace(protocols=(("odd", b"\0"), *odd.protocols))
    records = upgraded("consumer", 7, [odd], driver.host.image)
    driver.group = ConsumerGroup.from_classic("g", records, driver.host)
    driver.join("a")
    driver.beat("a", -1)
    assert driver.downgrade is not None
    value = decode_group_value(driver.downgrade.record)
    assert [each.member_id for each in value.members] == ["x"]


def test_an_instance_that_nobody_is_does_not_come_back_with_an_old_id() -> None:
    driver = upgraded_driver()
    joined = driver.classic_join("1", "an-old-id", instance="i")
    assert joined.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.classic_join("2", "an-old-id").error is ErrorCode.NONE


def test_a_static_member_with_another_subscription_takes_the_group_back_to_be_rebalanced() -> None:
    driver = ConsumerGroupDriver(t=2, u=2)
    driver.join("a", instance="i")
    epoch = driver.state.epoch
    joined = driver.classic_join("1", "", "u", instance="i")
    assert driver.downgrade is not None
    value = decode_group_value(driver.downgrade.record)
    assert (joined.generation_id, value.generation_id, value.leader) == (epoch, epoch, None)


def test_without_leave_to_go_back_classic_members_stay_where_they_are() -> None:
    driver = upgraded_driver()
    driver.host.settings = replace(SETTINGS, migration_policy=MigrationPolicy.UPGRADE)
    driver.beat("a", -1)
    assert driver.downgrade is None
    assert set(driver.state.members) == {"x", "y"}
    for member_id in "xy":
        assert driver.classic_join(f"1-{member_id}", member_id).generation_id == 9
    assert sorted(len(driver.held(each)["t"]) for each in "xy") == [2, 2]


def test_a_static_member_may_come_back_by_the_other_protocol() -> None:
    driver = ConsumerGroupDriver(t=2)
    driver.join("a", instance="i")
    joined = driver.classic_join("1", instance="i")
    assert joined.error is ErrorCode.NONE
    assert driver.downgrade is not None
    value = decode_group_value(driver.downgrade.record)
    assert joined.generation_id == value.generation_id
    (member,) = value.members
    # It has what it had, so nothing has to be assigned anew.
    assert value.leader == member.member_id
    assert (member.member_id, member.group_instance_id) == (joined.member_id, "i")
    assert decode_assignment(member.assignment).partitions == {"t": [0, 1]}


def test_the_newer_process_of_a_static_member_takes_over_a_classic_one_that_lives() -> None:
    driver = ConsumerGroupDriver(t=2)
    driver.join("a")
    joined = driver.classic_join("1", instance="i")
    assert driver.join("b", instance="i").error is ErrorCode.NONE
    assert joined.member_id not in driver.state.members


def test_generations_of_classic_members_never_fall_while_the_group_comes_and_goes() -> None:
    driver = upgraded_driver()
    generation, newest = 7, "a"
    for number in range(30):
        for member_id in "xy":
            joined = driver.classic_join(f"{number}-{member_id}", member_id)
            assert joined.generation_id >= generation
        generation = joined.generation_id
        driver.host.settings = replace(SETTINGS, migration_policy=MigrationPolicy.UPGRADE)
        driver.beat(newest, -1)
        newest = f"m{number}"
        driver.join(newest)
        driver.require_replayable()


@pytest.mark.parametrize("version", range(5))
def test_subscriptions_of_every_version_are_read(version: int) -> None:
    data = b"".join(
        (
            version.to_bytes(2, "big"),
            b"\0\0\0\1\0\1t",
            b"\0\0\0\2ud",
            b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\1" * (version >= 1),
            b"\0\0\0\7" * (version >= 2),
            b"\0\4rack" * (version >= 3),
            b"later" * (version >= 4),
        )
    )
    found = decode_subscription(data)
    assert (found.version, found.topics) == (version, ("t",))
    assert found.owned == ({"t": [0, 1]} if version >= 1 else {})
    assert found.rack_id == ("rack" if version >= 3 else None)


def test_an_assignment_is_read_as_it_was_written() -> None:
    data = encode_assignment(9, {"t": [2, 0], "a": [1]})
    assert data[:2] == b"\0\3"
    assert decode_assignment(data).partitions == {"a": [1], "t": [0, 2]}
    assert held(known_partitions({"t": [0, 9]}, Host({"t": 1}).image)) == {"t": [0]}


@pytest.mark.parametrize("data", [b"\0", b"\0\0\x7f\xff\xff\xff", b"\xff\xff\0\0\0\0"])
def test_nonsense_is_a_value_error(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with pytest.raises(ValueError, match=r"\w"):
            decode(data)


def test_a_subscription_to_very_many_topics_is_not_looked_into() -> None:
    names = [f"{each:x}" for each in range(MEMBER_TOPICS_MAX + 1)]
    assert len(decode_subscription(subscription(*names[1:])).topics) == MEMBER_TOPICS_MAX
    assert len(subscribed_topics(subscription(*names[1:])) or ()) == MEMBER_TOPICS_MAX
    with pytest.raises(ValueError, match="10001 topics"):
        decode_subscription(subscription(*names))
    assert subscribed_topics(subscription(*names)) is None
