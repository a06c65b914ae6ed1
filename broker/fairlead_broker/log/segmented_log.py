"""The part of `Log` that the modules beside it use.

`Log` imports these modules (`lookup`, `retention`, `truncation`, `flush`, `follower_append`), so
they cannot import `Log` in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_broker.disk import Disk
    from fairlead_broker.log.files.deferred_files import DeferredFiles
    from fairlead_broker.log.files.deletions import Deletions
    from fairlead_broker.log.files.read_cache import ReadCache
    from fairlead_broker.log.flush_state import FlushState
    from fairlead_broker.log.leader_epochs import LeaderEpochs
    from fairlead_broker.log.producers.producer_state import ProducerState
    from fairlead_broker.log.producers.recent_producers import RecentProducers
    from fairlead_broker.log.segment import Segment
    from fairlead_model.configs.log_config import LogConfig
    from fairlead_wire.errors import KafkaError


class Replacement(Protocol):
    """Compacted segments that are taking the place of those that they were made from."""

    def settle(self) -> None:
        """Finish or give up this replacement at once. OSError."""


class SegmentedLog(Protocol):
    """Attributes and methods of `Log`, which describes them."""

    disk: Disk
    cache: ReadCache
    path: str
    directory: Path
    topic: str
    partition: int
    config: LogConfig
    segments: list[Segment]
    bases: list[int]
    active: Segment
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerState
    recent_producers: RecentProducers
    deferred: DeferredFiles
    refusal: str | None
    is_offline: bool
    lacks_room: bool
    flush_state: FlushState
    deletions: Deletions
    jitter_ms: int
    is_compacted: bool
    first_dirty_offset: int
    last_horizon_ms: int
    is_checkpointed: bool
    start_before_cut: int | None
    has_aborted: bool
    has_holes: bool
    topic_id: bytes
    swap: Replacement | None

    @property
    def is_closed(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def unflushed_messages(self) -> int: ...

    def check_offsets(self) -> None: ...
    def note_holes(self) -> None: ...
    def write_epochs(self) -> None: ...
    def roll(self, now_ms: int, base_offset: int | None = None) -> None: ...
    def ensure_writable(self) -> None: ...
    def settle_swap(self) -> None: ...
    def assign_leader_epoch(self, leader_epoch: int) -> None: ...
    def segment_for(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> Segment: ...
    def add_segment(self, segment: Segment) -> None: ...
    def set_active(self) -> None: ...
    def forget_recent(self) -> None: ...
    def note_recent(self, base_offset: int, position: int) -> None: ...
    def end_before_failed_append(self, position: int, end_offset: int) -> None: ...
    def go_offline(self, error: OSError) -> KafkaError: ...
