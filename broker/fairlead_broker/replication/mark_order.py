"""The order of a replica's four marks, which each change of a mark has to keep (I1). Pure."""

from typing import TYPE_CHECKING, Protocol

from fairlead_model.invariants import violated

if TYPE_CHECKING:
    from fairlead_broker.replication.replica_log import EpochHistory


class Marks(Protocol):
    """A replica with its marks; its text names the partition in an error."""

    @property
    def log(self) -> "EpochHistory": ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...


def check_mark_order(replica: Marks) -> None:
    """Raise InvariantViolation if one of the marks has passed the next one."""
    log, stable, high_watermark = replica.log, replica.last_stable_offset, replica.high_watermark
    start, end = log.log_start_offset, log.log_end_offset
    if start <= stable <= high_watermark <= end:
        return
    if start > stable:
        violated("log_start_offset {} > last_stable_offset {} in {}", start, stable, replica)
    if stable > high_watermark:
        violated("last_stable_offset {} > high_watermark {} in {}", stable, high_watermark, replica)
    violated("high_watermark {} > log_end_offset {} in {}", high_watermark, end, replica)
