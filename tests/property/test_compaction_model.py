"""Compaction against a dictionary: random records, many cleanings, and a crash at every step."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from compaction import compact, read_records
from log_batches import TOPIC_ID, flush, record_batch
from simulated_disk import PowerCut, SimulatedDisk

from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.log import Log
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.compression import Codec
from fairlead_wire.records import Record

PATH = "/data"
RETENTION_MS = 1_000
CONFIG = LogConfig(
    segment_bytes=1_500,
    index_interval_bytes=300,
    segment_index_bytes=200,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)
LONG_KEY = b"k" * 40


@dataclass
class Model:
    """`written` is every record by offset; `producers` the last sequence of each.

    `batches` are first and next offset, producer id and last sequence of each. Below `deleted` all
    may go, but a crash may bring back what is still there.
    """

    written: dict[int, Record] = field(default_factory=dict)
    appended_ms: dict[int, int] = field(default_factory=dict)
    flushed: int = 0
    producers: dict[int, int] = field(default_factory=dict)
    batches: list[tuple[int, int, int, int]] = field(default_factory=list)
    deleted: int = 0

    def last_values(self, start: int, end: int) -> dict[bytes, Record]:
        return {
            record.key: record
            for offset, record in sorted(self.written.items())
            if start <= offset < end and record.key is not None
        }

    def cut(self, end: int) -> None:
        self.written = {offset: each for offset, each in self.written.items() if offset < end}
        self.batches = [batch for batch in self.batches if batch[1] <= end]
        self.producers = {batch[2]: batch[3] for batch in self.batches if batch[2] >= 0}
        self.flushed = min(self.flushed, end)


class Scenario:
    """Random appends, rolls and cleanings of one log, by a seed; time passes as it goes."""

    def __init__(self, seed: int, disk: SimulatedDisk) -> None:
        self.random = Random(seed)
        self.disk = disk
        self.model = Model()
        self.now_ms = 10_000
        self.directory = open_directory(disk)
        self.directory.confirm_start(1)
        self.log = self.directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += self.random.choice((1, 50, RETENTION_MS))
            match self.random.randrange(10):
                case 0:
                    self.log.roll(self.now_ms)
                case 1 | 2:
                    self.compact()
                case 3:
                    self.directory.write_checkpoints()
                case _:
                    self.append()

    def compact(self) -> None:
        self.flush()
        buffer = self.random.choice((700, 1 << 16))
        compact(
            self.log,
            self.now_ms,
            stable_offset=self.random.randint(self.log.log_start_offset, self.log.log_end_offset),
            dedupe_buffer_bytes=buffer,
        )
        job = self.log.begin_deletions(self.now_ms)
        if job is not None:
            job.run()

    def flush(self) -> None:
        end = self.log.log_end_offset
        flush(self.log)
        self.model.flushed = max(self.model.flushed, end)

    def append(self) -> None:
        random, model = self.random, self.model
        base = self.log.log_end_offset
        count = random.randint(1, 6)
        records = []
        for at in range(count):
            number = random.randrange(12)
            key = b"%d" % number if number < 9 else LONG_KEY + b"%d" % number
            value = None if random.random() < 0.2 else b"v%d" % (base + at) * random.randint(1, 9)
            records.append(Record(at, self.now_ms + at, key, value, (("h", b"x"),)))
        producer_id = random.choice((-1, 7, 8))
        options: dict[str, int] = {}
        if producer_id >= 0:
            sequence = model.producers.get(producer_id, -1) + 1
            options = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
            }
        content = record_batch(*records, codec=random.choice(list(Codec)), **options)
        # Noted first: a cut in the middle may keep the batch or not.
        for record in records:
            model.written[base + record.offset] = record._replace(offset=base + record.offset)
        last_sequence = options["base_sequence"] + count - 1 if options else -1
        model.batches.append((base, base + count, producer_id, last_sequence))
        self.log.append_as_leader(content, leader_epoch=0, now_ms=self.now_ms)
        if producer_id >= 0:
            model.producers[producer_id] = last_sequence


class RoughScenario(Scenario):
    """Besides, the process is killed, the power fails, records are deleted and the log is cut."""

    def __init__(self, seed: int, disk: SimulatedDisk) -> None:
        super().__init__(seed, disk)
        self.stable_offset = 0
        self.boots = 0
        self.flush()
        self.sync()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += self.random.choice((1, 50, RETENTION_MS))
            match self.random.randrange(16):
                case 0:
                    self.restart(self.disk.after_kill())
                case 1:
                    self.boots += 1
                    self.restart(self.disk.after_power_cut(self.random, 512))
                case 2:
                    start = self.random.randint(self.log.log_start_offset, self.stable_offset)
                    self.log.advance_log_start_offset(start)
                    self.model.deleted = max(self.model.deleted, start)
                case 3:
                    self.log.truncate_to(
                        self.random.randint(self.stable_offset, self.log.log_end_offset)
                    )
                    self.directory.write_checkpoints()
                    self.model.cut(self.log.log_end_offset)
                    # It may have been inside the batch that went.
                    self.stable_offset = min(self.stable_offset, self.log.log_end_offset)
                case 4:
                    self.sync()
                case 5 | 6 | 7:
                    self.compact()
                case _:
                    super().run(1)

    def compact(self) -> None:
        # What is committed stays: it is never cut.
        end = self.log.log_end_offset
        self.stable_offset = self.random.randint(min(self.stable_offset, end), end)
        self.flush()
        compact(
            self.log,
            self.now_ms,
            stable_offset=self.stable_offset,
            dedupe_buffer_bytes=self.random.choice((700, 1 << 16)),
        )
        job = self.log.begin_deletions(self.now_ms)
        if job is not None and self.random.random() < 0.5:
            job.run()

    def sync(self) -> None:
        job = self.directory.begin_sync()
        if job is not None:
            job.run()

    def restart(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.directory = open_directory(disk, f"boot {self.boots}")
        self.directory.confirm_start(1)
        log = known_log(self.directory)
        assert log.log_end_offset >= self.model.flushed
        log.reconfigure(CONFIG)
        self.log = log
        self.model.cut(log.log_end_offset)
        self.stable_offset = max(min(self.stable_offset, log.log_end_offset), log.log_start_offset)


def open_directory(disk: SimulatedDisk, boot_id: str = "boot 0") -> LogDirectory:
    directory = LogDirectory(PATH, node_id=0, cluster_id="c", disk=disk, boot_id=boot_id)
    directory.load(0, config_for=lambda topic, partition: LogConfig(**COMMON))
    return directory


# What recovery knows before the topics' settings are known: nothing of compaction.
COMMON: dict[str, Any] = {
    "segment_bytes": 1_500,
    "index_interval_bytes": 300,
    "segment_index_bytes": 200,
}


def check(log: Log, model: Model, now_ms: int, *, is_clean_to: int) -> None:
    """The log holds what the model's records leave, and nothing that was not written."""
    log.check_offsets()
    found = read_records(log)
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets)), "an offset is there twice, or out of order"
    for record in found:
        assert record == model.written[record.offset]
    last = model.last_values(log.log_start_offset, log.log_end_offset)
    there = {record.key: record for record in found}
    for key, record in last.items():
        if record.offset < model.deleted and key not in there:
            continue
        if record.value is None and key not in there:
            # A tombstone that is gone was due, and took every older value with it.
            assert record.timestamp + RETENTION_MS <= now_ms + 10
        else:
            assert there[key] == record, "the last value of a key is lost"
    assert set(there) <= set(last)
    keys_in_clean_part = [r.key for r in found if r.offset < is_clean_to]
    assert len(keys_in_clean_part) == len(set(keys_in_clean_part)), "a key is there twice"


def known_log(directory: LogDirectory) -> Log:
    log = directory.log("t", 0)
    assert log is not None
    return log


def check_producers(log: Log, model: Model) -> None:
    """A retry of each producer's last batch is still known."""
    for producer_id, sequence in model.producers.items():
        entry = log.producers.get(producer_id)
        assert entry is not None
        assert entry.batches[-1].last_sequence == sequence


@pytest.mark.parametrize("seed", range(60))
def test_the_last_value_of_every_key_stays(seed: int) -> None:
    scenario = Scenario(seed, SimulatedDisk())
    for _ in range(6):
        scenario.run(12)
        log, model = scenario.log, scenario.model
        check(log, model, scenario.now_ms, is_clean_to=log.first_dirty_offset)
        check_producers(log, model)
    # A restart without the clean marker derives everything anew from the files.
    scenario.flush()
    end, first_dirty = scenario.log.log_end_offset, scenario.log.first_dirty_offset
    scenario.directory.write_checkpoints()
    directory = open_directory(scenario.disk.after_kill())
    log = known_log(directory)
    assert log.log_end_offset == end
    assert log.first_dirty_offset == first_dirty
    check(log, scenario.model, scenario.now_ms, is_clean_to=first_dirty)
    check_producers(log, scenario.model)


@pytest.mark.parametrize("seed", range(100))
def test_no_deleted_key_comes_back_whatever_happens_to_the_log(seed: int) -> None:
    scenario = RoughScenario(seed, SimulatedDisk())
    for _ in range(8):
        scenario.run(12)
        log, model = scenario.log, scenario.model
        check(log, model, scenario.now_ms, is_clean_to=log.first_dirty_offset)
        check_producers(log, model)


@pytest.mark.parametrize("seed", range(6))
def test_everything_is_compacted_in_the_end(seed: int) -> None:
    scenario = Scenario(seed, SimulatedDisk())
    scenario.run(60)
    log = scenario.log
    log.roll(scenario.now_ms)
    scenario.flush()
    for _ in range(200):
        if compact(log, scenario.now_ms, dedupe_buffer_bytes=2_000) is None:
            break
    assert log.first_dirty_offset == log.log_end_offset
    scenario.now_ms += 2 * RETENTION_MS
    compact(log, scenario.now_ms, last_horizon_ms=0)
    found = read_records(log)
    values = {k: r for k, r in scenario.model.last_values(0, log.log_end_offset).items() if r.value}
    assert {record.key: record for record in found} == values
    assert len(found) == len(values)


def run_until_cut(seed: int, *, before: int = -1, after: int = -1) -> Scenario | None:
    """The scenario with a cut at an operation of its last cleaning; None if it ended first."""
    scenario = Scenario(seed, SimulatedDisk())
    scenario.run(25)
    scenario.log.roll(scenario.now_ms)
    scenario.flush()
    scenario.directory.write_checkpoints()
    disk = scenario.disk
    disk.cut_before = disk.operations + before if before >= 0 else -1
    disk.cut_after = disk.operations + after if after >= 0 else -1
    try:
        compact(scenario.log, scenario.now_ms)
        scenario.directory.write_checkpoints()
    except PowerCut:
        return scenario
    return None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("has_power", [True, False])
def test_a_crash_at_every_step_of_a_cleaning_loses_nothing(seed: int, has_power: bool) -> None:
    at = 1
    while (scenario := run_until_cut(seed, before=at)) is not None:
        random = Random(seed * 1_000 + at)
        for _ in range(1 if has_power else 2):
            disk = scenario.disk
            crashed = disk.after_kill() if has_power else disk.after_power_cut(random, 512)
            # The first recovery may be cut off as well.
            crashed.cut_before = crashed.operations + random.randint(1, 40)
            try:
                open_directory(crashed)
            except PowerCut:
                crashed = crashed.after_kill() if has_power else crashed.after_power_cut(random)
            crashed.cut_before = -1
            directory = open_directory(crashed)
            log = known_log(directory)
            assert log.log_end_offset == scenario.model.flushed
            check(log, scenario.model, scenario.now_ms, is_clean_to=0)
            check_producers(log, scenario.model)
            names = {entry.name for entry in crashed.list_directory(f"{PATH}/t-0")}
            assert not [n for n in names if n.endswith((".swap", ".cleaned", ".deleted"))]
            # And it can be compacted as if nothing had been.
            directory.confirm_start(2)
            log.reconfigure(CONFIG)
            compact(log, scenario.now_ms)
            check(log, scenario.model, scenario.now_ms, is_clean_to=log.first_dirty_offset)
        at += 1
    assert at > 30, "the cleaning was over before it began"
