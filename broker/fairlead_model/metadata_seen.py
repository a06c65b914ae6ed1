"""How far a broker has seen the controller's metadata come: what tells that a store went back."""

from typing import NamedTuple


class MetadataSeen(NamedTuple):
    """A place in the history of a cluster's metadata; a later one is higher."""

    controller_epoch: int = -1
    """Of the controller that told it; -1 if none has."""
    writes: int = -1
    """How many writes the tables of the controller's store had had, all together."""


NOTHING_SEEN = MetadataSeen()
