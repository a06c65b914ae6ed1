"""How much of the controller's metadata a broker has seen: shows that a store was rolled back."""

from typing import NamedTuple


class MetadataSeen(NamedTuple):
    """A position in the history of a cluster's metadata; a later position is higher."""

    controller_epoch: int = -1
    """Epoch of the controller that sent the position; -1 if there is none."""
    writes: int = -1
    """Number of writes to all tables of the controller's store."""


NOTHING_SEEN = MetadataSeen()
