"""Members of groups that come back, stall and die, as each client's users see it."""

import time
from collections import Counter
from collections.abc import Callable

import pytest
from started_members import LIBRARIES, Members, wait_until_read, wait_until_shared
from waiting import wait_until

pytestmark = [
    # kafka-python and aiokafka leave sockets to the garbage collector when a group moves on.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.mark.parametrize("name", [*LIBRARIES, "kcat"])
def test_a_static_member_that_restarts_gets_its_partitions_back_and_disturbs_nobody(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic("static", partitions=4)
    options = {"session_ms": 50_000, "max_poll_ms": 60_000, "auto_commit_ms": 500}
    first, second = (
        members.any_client(name, group, [topic], instance=instance, **options)
        for instance in ("first", "second")
    )
    wait_until_shared([first, second], topic, 4)
    places, told = first.assigned, len(second.events)
    values = write(topic, 8, 4)
    wait_until_read([first, second], values)
    first.close()
    missed = write(topic, 8, 4)
    back = members.any_client(name, group, [topic], instance="first", **options)
    wait_until(lambda: back.assigned == places, lambda: f"{back.assigned} {back.errors}")
    wait_until_read([back, second], missed)
    after = second.events[told:]
    if name == "kafka-python":
        # Its leader joins once more when its view of the topic comes after its assignment.
        after = [event for event in after if event.places not in (second.assigned, frozenset())]
    assert not after, "the other member was rebalanced"
    assert not second.errors
    assert set(back.values) <= set(missed)


FENCED = {
    "confluent-kafka": ("_FATAL", "FENCED_INSTANCE_ID"),
    "kafka-python": ("FencedInstanceIdError",),
}


@pytest.mark.parametrize("name", FENCED)
def test_a_second_instance_fences_the_first(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    """aiokafka names its instance only while joining, so it can be told apart, not fenced."""
    topic = make_topic("fenced")
    first = members.library(name, group, [topic], instance="only")
    wait_until_shared([first], topic, 1)
    second = members.library(name, group, [topic], instance="only")
    wait_until_shared([second], topic, 1)
    with pytest.raises(Exception) as refusal:
        first.commit({(topic, 0): 0})
    assert first.name_error(refusal.value) in FENCED[name]
    wait_until_read([second], write(topic, 5))
    assert not second.errors


LEFT_BEHIND = {
    # librdkafka leaves the group by itself, and knows that it has.
    "confluent-kafka": ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "_MAX_POLL_EXCEEDED"),
    # The last is its own: its heartbeats have told it that it has to join again.
    "kafka-python": (
        "CommitFailedError",
        "UnknownMemberIdError",
        "IllegalGenerationError",
        "RebalanceInProgressError",
    ),
    # It joins again by itself when it hears of the rebalance, and may know what it lost by then.
    "aiokafka": (
        "CommitFailedError",
        "UnknownMemberIdError",
        "IllegalGenerationError",
        "IllegalStateError",
    ),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_member_that_stalls_loses_its_partitions_and_may_not_commit(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic("stalls")
    options = {"session_ms": 1_500, "max_poll_ms": 1_500}
    stalled = members.library(name, group, [topic], **options)
    values = write(topic, 5)
    wait_until_read([stalled], values)
    stalled.stall()
    # On a busy machine who reads on may not be heard for such a time either.
    heir = members.library(name, group, [topic])
    wait_until(lambda: bool(heir.assigned), lambda: f"not taken over: {heir.errors}")
    wait_until_read([heir], values)
    with pytest.raises(Exception) as refusal:
        stalled.commit({(topic, 0): 3})
    assert stalled.name_error(refusal.value) in LEFT_BEHIND[name]
    heir.commit({(topic, 0): 5})
    assert heir.committed((topic, 0)) == (5, "")
    stalled.wake()
    heir.close()
    more = write(topic, 5)
    wait_until_read([stalled], more)


@pytest.mark.parametrize("name", [*LIBRARIES, "kcat"])
def test_the_partitions_of_a_killed_member_are_taken_over_where_it_committed(
    name: str,
    members: Members,
    group: str,
    make_topic: Callable[..., str],
    write: Callable[..., list[bytes]],
) -> None:
    topic = make_topic("killed", partitions=2)
    # On a busy machine the survivor may not be heard for the time in which the victim is missed.
    survivor = members.any_client(name, group, [topic], session_ms=10_000, auto_commit_ms=100)
    victim = members.killable(name, group, [topic], session_ms=1_500, auto_commit_ms=100)
    wait_until_shared([survivor, victim], topic, 2)
    values = write(topic, 10, 2)
    wait_until_read([survivor, victim], values)
    killed_s = time.monotonic()
    victim.kill()
    values += write(topic, 10, 2)
    wait_until_shared([survivor], topic, 2)
    assert time.monotonic() - killed_s > 0.5, "the session did not last"
    wait_until_read([survivor, victim], values)
    survivor_repeats = [value for value, count in Counter(survivor.values).items() if count > 1]
    assert not survivor_repeats
