"""Reading one range from a broker that answers from a script."""

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from fairlead_spark import limits
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import MissingTopicError, PassingError, Topic
from fairlead_spark.errors import DataLossError, SourceError
from fairlead_spark.offsets import EARLIEST, EARLIEST_LOCAL, TopicPartition
from fairlead_spark.reading import range_reader
from fairlead_spark.reading.planning import OffsetRange
from fairlead_spark.reading.range_reader import RangeReader, ReadSettings
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from fairlead_wire.records import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Generator

TOPIC_ID = b"0123456789abcdef"
WHERE = TopicPartition("t", 0)


def records(*offsets: int) -> bytes:
    return encode_batch([Record(offset, 9, None, b"%d" % offset) for offset in offsets])


class ScriptedBroker:
    """Connection and cluster in one. Each reply is records, an error code, or an exception."""

    address = "broker:9092"

    def __init__(
        self, *replies: bytes | ErrorCode | Exception | FetchResponse, high_watermark: int = 100
    ) -> None:
        self.settings = ClientSettings("broker:9092", fetch_wait_ms=1)
        self.replies = list(replies)
        self.asked: list[int] = []
        self.high_watermark = high_watermark
        self.log_start = self.local_start = 0
        self.dropped = 0
        self.topic_id = TOPIC_ID
        self.frame = bytearray()

    def leader_of(self, topic: str, partition: int) -> tuple[int, Topic]:
        return 1, Topic(topic, self.topic_id, {0: 1}, {0: 5})

    def connection(self, node_id: int) -> Any:
        return self

    def version_of(self, api_key: int, wanted: int) -> int:
        return wanted

    def drop(self, connection: Any) -> None:
        self.dropped += 1

    def forget_leaders(self) -> None:
        pass

    def list_offsets(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        known = {EARLIEST: self.log_start, EARLIEST_LOCAL: self.local_start}
        return {WHERE: known.get(times[WHERE], self.high_watermark)}

    def send(self, request: Any, version: int) -> int:
        self.asked.append(request.topics[0].partitions[0].fetch_offset)
        return len(self.asked)

    def receive(self, api_key: int, version: int, sent: int, *, timeout_s: float) -> FetchResponse:
        reply = self.replies.pop(0) if self.replies else b""
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, FetchResponse):
            return reply
        partition = PartitionData(
            high_watermark=self.high_watermark, last_stable_offset=self.high_watermark
        )
        if isinstance(reply, ErrorCode):
            partition.error_code = reply
        else:
            self.frame = bytearray(b"before" + reply)
            partition.records = memoryview(self.frame)[6:]
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])


def read(
    broker: ScriptedBroker,
    start: int,
    until: int,
    *,
    timeout_s: float = 5.0,
    fails: bool = True,
    **wanted: Any,
) -> list[int]:
    settings = ReadSettings(
        fail_on_data_loss=fails, include_headers=False, poll_timeout_s=timeout_s
    )
    reader = RangeReader(
        broker,  # type: ignore[arg-type]
        OffsetRange("t", 0, start, until, TOPIC_ID, **wanted),
        settings,
    )
    return [int(value.as_py()) for batch in reader.batches() for value in batch.column(1)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RETRY_BACKOFF_S", 0.001)


def test_fetches_follow_one_another_and_end_with_the_range() -> None:
    broker = ScriptedBroker(records(0, 1, 2), records(3, 4), records(5, 6))
    assert read(broker, 1, 6) == [1, 2, 3, 4, 5]
    assert broker.asked == [1, 3, 5]
    assert broker.dropped == 0


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ConnectionError("closed"),
        TimeoutError("silent"),
    ],
)
def test_trouble_that_passes_costs_no_record_and_repeats_none(trouble: Any) -> None:
    broker = ScriptedBroker(records(0, 1), trouble, records(2, 3))
    assert read(broker, 0, 4) == [0, 1, 2, 3]
    assert broker.asked == [0, 2, 2]


def test_a_broker_that_never_answers_is_named() -> None:
    broker = ScriptedBroker(*[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10_000)
    with pytest.raises(SourceError, match=r"from t-0 at offset 3 \(leader 1 at broker:9092\)"):
        read(broker, 3, 4, timeout_s=0.05)


def test_records_that_do_not_come() -> None:
    with pytest.raises(SourceError, match="pollTimeoutMs"):
        read(ScriptedBroker(high_watermark=3), 3, 4, timeout_s=0.05)


def test_a_reader_that_is_throttled_neither_fails_nor_leaves_records_out() -> None:
    """Kafka answers no partition at all, others one without records."""
    partition = PartitionData(high_watermark=100, last_stable_offset=100, records=b"")
    topic = FetchableTopicResponse(partitions=[partition])
    broker = ScriptedBroker(
        records(0, 1),
        *[FetchResponse(throttle_time_ms=5)] * 3,
        *[FetchResponse(throttle_time_ms=5, responses=[topic])] * 3,
        records(2, 3),
    )
    assert read(broker, 0, 4) == [0, 1, 2, 3]
    assert broker.dropped == 0


def test_offsets_without_records_at_the_end_of_a_log() -> None:
    broker = ScriptedBroker(records(0, 1), high_watermark=9)
    assert read(broker, 0, 9) == [0, 1]


def test_records_that_a_broker_waits_for_in_vain_are_not_the_end_of_a_log() -> None:
    """Kafka answers so where they lie in remote storage, which is slow (KIP-405)."""
    broker = ScriptedBroker(records(0, 1), *[b""] * 5, records(2, 3), high_watermark=9)
    broker.local_start = 4
    assert read(broker, 0, 9) == [0, 1, 2, 3]


def test_gaps_are_no_loss() -> None:
    broker = ScriptedBroker(records(0, 5), records(40, 41))
    assert read(broker, 0, 41) == [0, 5, 40]


def test_an_error_that_stays_is_not_tried_again() -> None:
    broker = ScriptedBroker(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(
        SourceError, match=r"t-0 at offset 0: broker 1 .*TOPIC_AUTHORIZATION_FAILED"
    ):
        read(broker, 0, 1)
    assert broker.asked == [0]


def test_a_corrupt_batch_on_the_broker() -> None:
    with pytest.raises(SourceError, match=r"t-0 at offset 7: .*CORRUPT_MESSAGE"):
        read(ScriptedBroker(ErrorCode.CORRUPT_MESSAGE), 7, 9)


def test_what_retention_took() -> None:
    broker = ScriptedBroker(ErrorCode.OFFSET_OUT_OF_RANGE)
    broker.log_start = 5
    with pytest.raises(DataLossError, match="offsets 2 to 4 of t-0 are no longer there"):
        read(broker, 2, 8)
    for given in ({"fails": False}, {"is_from_earliest": True}):
        broker = ScriptedBroker(ErrorCode.OFFSET_OUT_OF_RANGE, records(5, 6, 7))
        broker.log_start = 5
        assert read(broker, 2, 8, **given) == [5, 6, 7]


def test_a_log_that_lost_its_end() -> None:
    broker = ScriptedBroker(ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=4)
    with pytest.raises(DataLossError, match="offset 6 of t-0 lies behind the end of its log, 4"):
        read(broker, 6, 8)
    assert (
        read(ScriptedBroker(ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=4), 6, 8, fails=False)
        == []
    )


def test_another_topic_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MISSING_TOPIC_S", 0.01)
    broker = ScriptedBroker(records(0))
    broker.topic_id = TOPIC_ID[::-1]
    with pytest.raises(DataLossError, match=r"t was deleted and made again while t-0 \[0, 1\)"):
        read(broker, 0, 1)
    assert read(broker, 0, 1, fails=False) == []


def test_a_topic_that_is_gone_is_lost_however_short_the_time_out_is() -> None:
    """It was an error for ever, with failOnDataLoss=false, too."""
    broker = ScriptedBroker()

    def leader_of(topic: str, partition: int) -> tuple[int, Topic]:
        raise MissingTopicError("topic t does not exist")

    broker.leader_of = leader_of  # type: ignore[method-assign]
    assert read(broker, 0, 2, timeout_s=0.2, fails=False) == []
    with pytest.raises(DataLossError, match="topic t does not exist: it was deleted while"):
        read(broker, 0, 2, timeout_s=0.2)


@pytest.mark.parametrize("stands_asking", [True, False])
def test_a_machine_that_stands_still_makes_no_time_out_of_a_topic_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, *, stands_asking: bool
) -> None:
    """It was told as "the broker sends no records", which no setting about lost data reaches."""
    broker, asked, stood_s = ScriptedBroker(), 0, 0

    def leader_of(topic: str, partition: int) -> tuple[int, Topic]:
        nonlocal asked, stood_s
        asked += 1
        if stands_asking:
            stood_s = 60
        raise MissingTopicError("topic t does not exist")

    def sleep(_: float) -> None:
        nonlocal stood_s
        stood_s = 60

    broker.leader_of = leader_of  # type: ignore[method-assign]
    # Of the reader alone: the threads and fixtures of other tests have the real clock.
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stood_s, sleep=sleep)
    monkeypatch.setattr(range_reader, "time", clock)
    assert read(broker, 0, 2, timeout_s=1, fails=False) == []
    assert asked >= 2


def test_a_topic_that_is_back_is_one_that_times_out() -> None:
    broker = ScriptedBroker(*[FetchResponse(throttle_time_ms=5)] * 1000)
    found, gone = broker.leader_of, [True]

    def leader_of(topic: str, partition: int) -> tuple[int, Topic]:
        if gone:
            gone.pop()
            raise MissingTopicError("topic t does not exist")
        return found(topic, partition)

    broker.leader_of = leader_of  # type: ignore[method-assign]
    with pytest.raises(SourceError, match="sends no records"):
        read(broker, 0, 2, timeout_s=0.3)


def test_a_broker_that_knows_only_the_topic_before_loses_no_record() -> None:
    """The topic was made again before the query began, and this broker hears of it last."""
    broker = ScriptedBroker(records(0, 1))
    found, older = broker.leader_of, [TOPIC_ID[::-1]] * 5

    def leader_of(topic: str, partition: int) -> tuple[int, Topic]:
        broker.topic_id = older.pop() if older else TOPIC_ID
        return found(topic, partition)

    broker.leader_of = leader_of  # type: ignore[method-assign]
    assert read(broker, 0, 2, fails=False) == [0, 1]


def test_a_reader_that_is_left_early_takes_its_request_along() -> None:
    broker = ScriptedBroker(records(0, 1), records(2, 3))
    settings = ReadSettings(fail_on_data_loss=True, include_headers=False, poll_timeout_s=1)
    batches = RangeReader(
        broker,  # type: ignore[arg-type]
        OffsetRange("t", 0, 0, 4, TOPIC_ID),
        settings,
    ).batches()
    next(batches)
    cast("Generator[Any]", batches).close()
    assert broker.dropped == 1


def test_no_leader_for_a_while() -> None:
    broker = ScriptedBroker(records(0))
    answers = [PassingError("t-0 has no leader"), PassingError("t-0 has no leader")]
    found = broker.leader_of

    def leader_of(topic: str, partition: int) -> tuple[int, Topic]:
        if answers:
            raise answers.pop()
        return found(topic, partition)

    broker.leader_of = leader_of  # type: ignore[method-assign]
    assert read(broker, 0, 1) == [0]
    assert answers == []


def test_a_connection_that_takes_no_request_is_not_used_again() -> None:
    """Metadata may come over another one for ever, and this one would never be noticed."""
    broker = ScriptedBroker(records(0))
    sent, refusals = broker.send, [BrokenPipeError("gone")]

    def send(request: Any, version: int) -> int:
        if refusals:
            raise refusals.pop()
        return sent(request, version)

    broker.send = send  # type: ignore[method-assign]
    assert read(broker, 0, 1) == [0]
    assert broker.dropped == 1


def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again_however_long_all_went_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that has just restarted says so; the rest of the range was given up for lost."""
    monkeypatch.setattr(limits, "MISSING_TOPIC_S", 0.05)
    broker = ScriptedBroker(records(0, 1), records(2, 3))
    sent, received, found = broker.send, broker.receive, broker.leader_of
    missing: list[Exception] = []

    def send(request: Any, version: int) -> int:
        if len(broker.asked) == 1 and not missing:
            missing.append(MissingTopicError("t is not there"))
            raise BrokenPipeError("gone")
        return sent(request, version)

    def receive(*asked: Any, **options: Any) -> FetchResponse:
        time.sleep(0.1)
        return received(*asked, **options)

    def leader_of(topic: str, partition: int) -> tuple[int, Topic]:
        if len(missing) == 1:
            missing.append(missing[0])
            raise missing[0]
        return found(topic, partition)

    broker.send, broker.receive, broker.leader_of = send, receive, leader_of  # type: ignore[method-assign]
    assert read(broker, 0, 4) == [0, 1, 2, 3]
    assert len(missing) == 2
