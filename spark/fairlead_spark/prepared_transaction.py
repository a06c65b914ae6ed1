"""A transaction that another process may end: the data that this needs."""

from typing import Final, NamedTuple

PREFIX: Final = "fairlead-spark"
"""Prefix of all transactional ids."""


class PreparedTransaction(NamedTuple):
    """A task's open transaction, all of whose records are acknowledged."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
