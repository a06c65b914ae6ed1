"""The compared ways to acknowledge a record: one list, for the run and for its report."""

from dataclasses import dataclass
from typing import Final

GROUP: Final = "promises"


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to write: what the producer waits for, and the topic's durability settings."""

    acks: str
    replicas: int
    min_in_sync: int

    @property
    def key(self) -> str:
        return f"{GROUP}_{self.acks}_{self.replicas}_{self.min_in_sync}"

    @property
    def title(self) -> str:
        many = "replica" if self.replicas == 1 else "replicas"
        return f"acks={self.acks}, {self.replicas} {many}, min. in sync {self.min_in_sync}"


ACKS: Final = ("0", "1", "all")
# A topic with one replica never has two in sync.
LAYOUTS: Final = tuple(
    (replicas, least) for replicas in (1, 2, 3) for least in (1, 2) if least <= replicas
)
CELLS: Final = tuple(Cell(acks, *layout) for acks in ACKS for layout in LAYOUTS)
