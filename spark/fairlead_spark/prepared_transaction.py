"""A transaction that may end elsewhere than where it began: what has to be known of it."""

from typing import Final, NamedTuple

PREFIX: Final = "fairlead-spark"
"""With which all transactional ids begin."""


class PreparedTransaction(NamedTuple):
    """A task's open transaction, all of whose records are acknowledged."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
