"""A log against a list: random operations, and every answer compared with the obvious one."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_batches import LogBench, all_headers, append, as_leader_sent, batch, flush, read_headers
from memory_folders import make_memory_folder

from fairlead_broker.log.directory.clean_stop import stop_log
from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT
from fairlead_broker.log.recovery.log_recovery import recover_log
from fairlead_broker.log.recovery.start import RecoveryOrder
from fairlead_broker.tools.verify import verify_partition
from fairlead_wire.errors import ErrorCode, KafkaError

CONFIG = {
    "segment_bytes": 3_000,
    "index_interval_bytes": 300,
    "segment_index_bytes": 120,
    "segment_ms": 500,
    "retention_ms": 5_000,
    "file_delete_delay_ms": 0,
}


class LogMachine(RuleBasedStateMachine):
    """`model` is a list of (base offset, last offset, epoch, max timestamp), one a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = make_memory_folder()
        self.bench = LogBench(f"{self.folder.name}/t-0")
        self.model: list[tuple[int, int, int, int]] = []

        self.epoch = 0
        self.now_ms = 10_000

    @initialize()
    def create(self) -> None:
        self.log = self.bench.create(**CONFIG)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        self.folder.cleanup()

    @property
    def end(self) -> int:
        return self.model[-1][1] + 1 if self.model else self.log.log_start_offset

    @rule(
        records=st.integers(1, 20),
        size=st.integers(61, 900),
        timestamp=st.integers(9_000, 11_000) | st.just(-1),
    )
    def append(self, records: int, size: int, timestamp: int) -> None:
        base = self.log.log_end_offset
        size = max(size, 61 + 8 * records)
        content = batch(records, size=size, timestamp=timestamp, fill=b"\xff")
        append(self.log, content, epoch=self.epoch, now_ms=self.now_ms)
        self.model.append((base, base + records - 1, self.epoch, timestamp))

    @rule(records=st.lists(st.integers(1, 5), min_size=1, max_size=4))
    def append_as_follower(self, records: list[int]) -> None:
        base, parts = self.log.log_end_offset, []
        for count in records:
            parts.append(bytes(as_leader_sent(base, count, epoch=self.epoch, timestamp=9_500)))
            self.model.append((base, base + count - 1, self.epoch, 9_500))
            base += count
        self.log.append_as_follower(memoryview(b"".join(parts)), now_ms=self.now_ms)

    @rule()
    def lead(self) -> None:
        self.epoch += 1
        self.log.assign_leader_epoch(self.epoch)

    @rule(passed_ms=st.integers(1, 1_000))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def flush(self) -> None:
        flush(self.log, self.now_ms)
        assert self.log.recovery_point == self.log.log_end_offset

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, self.end))
        self.log.truncate_to(offset)
        cut = [entry for entry in self.model if entry[1] >= offset]
        self.model = self.model[: len(self.model) - len(cut)]
        if cut:
            cut_at = min(offset, cut[0][0])
            # Never below the start: the batch that holds it may go, and the start with it.
            assert self.log.log_end_offset == max(cut_at, self.log.log_start_offset)
            assert self.log.refusal == AWAITS_CHECKPOINT
            self.log.refusal = None
        self.epoch = max(self.epoch, 0)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end))
        self.log.advance_log_start_offset(offset)
        self.forget_below(self.log.log_start_offset)

    @rule(data=st.data())
    def apply_retention(self, data: st.DataObject) -> None:
        high_watermark = data.draw(st.integers(self.log.log_start_offset, self.log.log_end_offset))
        self.log.delete_expired_segments(self.now_ms, high_watermark)
        assert self.log.log_start_offset <= max(high_watermark, self.log.log_start_offset)
        job = self.log.begin_deletions(self.now_ms)
        if job is not None:
            job.run()
        self.forget_below(self.log.log_start_offset)

    def forget_below(self, offset: int) -> None:
        self.model = [entry for entry in self.model if entry[1] >= offset]

    @rule()
    def stop_and_start(self) -> None:
        assert stop_log(self.log, self.now_ms)
        self.reopen()

    @rule(has_page_cache=st.booleans())
    def crash_and_recover(self, has_page_cache: bool) -> None:
        self.log.maybe_write_epochs()
        flushed = self.log.recovery_point
        order = RecoveryOrder(
            self.bench.directory,
            flushed,
            self.log.log_start_offset,
            CONFIG["index_interval_bytes"],
            has_page_cache=has_page_cache,
        )
        self.log.close()
        report = recover_log(self.bench.disk, order, now_ms=self.now_ms)
        assert not report.reason
        self.reopen()

    def reopen(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        epochs = self.log.epochs.entries()
        self.log.close()
        self.log = self.bench.load(log_start_offset=start, **CONFIG)
        assert (self.log.log_start_offset, self.log.log_end_offset) == (start, end)
        # An epoch whose records all lie below the start may be found again by recovery.
        assert epochs[-1:] in ([], self.log.epochs.entries()[-1:])

    @rule(data=st.data(), max_bytes=st.integers(1, 4_000))
    def read_anywhere(self, data: st.DataObject, max_bytes: int) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = data.draw(st.integers(start, end))
        end_offset = data.draw(st.integers(offset, end))
        found = read_headers(self.log, offset, max_bytes, end_offset=end_offset)
        expected = [e for e in self.model if e[1] >= offset and e[1] < end_offset]
        got = [(h.base_offset, h.last_offset, h.partition_leader_epoch) for h in found]
        assert got == [entry[:3] for entry in expected[: len(got)]]
        if expected:
            assert got, "a readable batch makes progress"
            assert len(got) == 1 or sum(h.size for h in found) <= max_bytes
        for outside in (start - 1, end + 1):
            with pytest.raises(KafkaError) as caught:
                self.log.read(outside, 1, end_offset=end, minimum_one_batch=True)
            assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(timestamp=st.integers(8_900, 11_100))
    def look_up_timestamp(self, timestamp: int) -> None:
        # All records of a batch have its timestamp, or cannot be read: its start is answered.
        found = self.log.offset_for_timestamp(timestamp, end_offset=self.log.log_end_offset)
        start = self.log.log_start_offset
        expected = next((e for e in self.model if e[3] >= timestamp and e[1] >= start), None)
        if expected is None:
            assert found is None
        else:
            assert found is not None
            assert found.offset == max(expected[0], start)
            assert found.leader_epoch == expected[2]

    @rule(epoch=st.integers(0, 12))
    def look_up_epoch(self, epoch: int) -> None:
        entries = self.log.epochs.entries()
        answer = self.log.end_offset_for_epoch(epoch)
        if not entries or epoch > entries[-1][0]:
            assert answer == (-1, -1)
        else:
            higher = [start for e, start in entries if e > epoch]
            assert answer.end_offset == (higher[0] if higher else self.log.log_end_offset)

    @invariant()
    def everything_is_readable(self) -> None:
        if not hasattr(self, "log"):
            return
        self.log.check_offsets()
        got = [
            (h.base_offset, h.last_offset, h.partition_leader_epoch, h.max_timestamp)
            for h in all_headers(self.log)
        ]
        assert got == self.model

    @rule()
    def verify_files(self) -> None:
        assert not list(verify_partition(self.bench.directory))


LogMachine.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLog = LogMachine.TestCase
