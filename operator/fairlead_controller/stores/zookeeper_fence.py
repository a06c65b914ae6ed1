"""The epoch of the controller in ZooKeeper, and how it is raised.

`/controller_epoch` holds a plain number, as with Kafka. Its dataVersion is the fence: raising the
epoch changes it, and after that commit no multi of an older controller can land.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kazoo.exceptions import NoAuthError

from fairlead_controller.decisions.tables.new_beginning import CONTROLLER_EPOCH_MAX
from fairlead_controller.decisions.tables.stored_table import StoreCorruptError, StoreError
from fairlead_controller.stores.metadata_store import SealedError
from fairlead_controller.stores.zookeeper_multis import Fence
from fairlead_zookeeper.client import MultiError, ZooKeeperClient
from fairlead_zookeeper.operations import Create, Operation, SetData
from fairlead_zookeeper.znodes import CONTROLLER_EPOCH

EPOCH_DIGITS_MAX: Final = 20


class ElectionLostError(StoreError):
    """Somebody else has raised the epoch, or changed `/controller`, in between."""


@dataclass(frozen=True, slots=True)
class KnownEpoch:
    """`/controller_epoch` as it was last read."""

    epoch: int = 0
    version: int | None = None
    """None if the znode does not exist."""


def parse_epoch(data: bytes) -> int:
    """Read the number; StoreCorruptError, which names the path, if it is no epoch of Kafka's.

    Candidates and brokers remember the highest epoch that they have followed. One that no other can
    follow would therefore end the cluster.
    """
    text = data.decode(errors="replace").strip()
    is_number = text.isascii() and text.isdecimal() and len(text) <= EPOCH_DIGITS_MAX
    if not is_number or int(text) >= CONTROLLER_EPOCH_MAX:
        raise StoreCorruptError(
            f"{CONTROLLER_EPOCH} is no epoch: {text[:80]!r}; write the controllers' last one there"
        )
    return int(text)


async def read_epoch(client: ZooKeeperClient) -> KnownEpoch:
    """Read the epoch; StoreCorruptError or ZooKeeperError if that fails."""
    znode = await client.get(CONTROLLER_EPOCH)
    if znode is None:
        return KnownEpoch()
    return KnownEpoch(parse_epoch(znode.data), znode.stat.version)


async def raise_epoch(
    client: ZooKeeperClient,
    known: KnownEpoch,
    epoch: int,
    operations: Sequence[Operation] = (),
) -> Fence:
    """Raise a known epoch, in one multi with other operations; return the fence.

    ElectionLostError if the epoch has changed since, or another operation was refused; MultiError
    if an ACL is the reason. Then nothing was done. Other ZooKeeperErrors may leave the outcome
    open.
    """
    data = str(epoch).encode()
    first: Operation
    if known.version is None:
        first, version = Create(CONTROLLER_EPOCH, data), 0
    else:
        first, version = SetData(CONTROLLER_EPOCH, data, known.version), known.version + 1
    try:
        await client.multi([first, *operations])
    except MultiError as error:
        if isinstance(error.cause, NoAuthError):
            raise  # Nobody was faster: the next attempt would end the same way.
        raise ElectionLostError(f"the election was lost: {error}") from error
    return Fence(epoch, version)


def sealed_error() -> SealedError:
    """Return the error of a controller whose fence another one has moved."""
    return SealedError(f"another controller has been elected: {CONTROLLER_EPOCH} has moved on")
