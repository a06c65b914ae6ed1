"""A session with the old cluster's ZooKeeper, on top of kazoo.

Some hundreds of requests are sent at a time: one by one, a group of 10,000 partitions would take a
minute. Without a connection, kazoo queues requests, without a time limit. So this module writes
only while connected, and only if a znode has the expected version: a late write then fails instead
of undoing a later one.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlead_cli.errors import CliError
from fairlead_cli.zookeeper.tree import Znode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kazoo.client import KazooClient

    from fairlead_zookeeper.address import ZooKeeperAccess

PATIENCE_S = 10.0
ASKED_AT_ONCE = 400
# A multi counts as one request, and a server accepts at most 1 MiB.
OPERATIONS_AT_ONCE = 1_000
RETRIES = {"max_tries": -1, "delay": 0.1, "backoff": 1, "max_delay": 0.5, "max_jitter": 0.4}
NAMED_MAX = 8


class Write(NamedTuple):
    """A znode to set, if it has this version, or to create (None)."""

    path: str
    data: bytes
    version: int | None


@contextmanager
def open_session(ensemble: ZooKeeperAccess) -> Iterator[Session]:
    """Connect, and end the session after the block; CliError says what is wrong."""
    import logging

    from kazoo.client import KazooClient
    from kazoo.handlers.threading import KazooTimeoutError

    logger = logging.getLogger("fairlead_cli.kazoo")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    client = KazooClient(
        hosts=ensemble.connect_string,
        timeout=PATIENCE_S,
        connection_retry=dict(RETRIES),
        logger=logger,
    )
    try:
        client.start(timeout=PATIENCE_S)
    except KazooTimeoutError:
        raise CliError(
            f"no ZooKeeper answers at {','.join(ensemble.hosts)} within {PATIENCE_S:.0f} s",
            hint="Check the address, and that a majority of the ensemble runs.",
        ) from None
    try:
        session = Session(client, ensemble)
        session.require_chroot()
        yield session
    finally:
        client.stop()
        client.close()


class Session:
    """Reads subtrees, and writes znodes if they have the expected versions."""

    def __init__(self, client: KazooClient, ensemble: ZooKeeperAccess) -> None:
        self._client = client
        self._ensemble = ensemble

    def require_chroot(self) -> None:
        """Refuse a chroot that does not exist: everything below it would seem to be empty."""
        # Reads are from one server, which must have all earlier writes of others.
        self._ask(self._client.sync_async("/"))
        if self._ask(self._client.exists_async("/")) is None:
            raise CliError(
                f"there is no znode {self._ensemble.chroot} at {','.join(self._ensemble.hosts)}",
                hint="Use the chroot of zookeeper.connect in the old cluster's server.properties.",
            )

    def require_kafka(self, *paths: str) -> None:
        """Refuse a place without a Kafka: none of these znodes exists."""
        if any(self._ask(self._client.exists_async(path)) is not None for path in paths):
            return
        there = self.read("/", depth=0)["/"].children
        names = ", ".join(sorted(there)[:NAMED_MAX]) or "nothing"
        raise CliError(
            f"no Kafka keeps its metadata at {self._ensemble.connect_string}: "
            f"there is no {' and no '.join(paths)}",
            hint=f"There is: {names}. A chroot stands behind the last server: "
            f"{self._ensemble.hosts[-1]}/CHROOT",
        )

    def read(self, root: str, *, depth: int) -> dict[str, Znode]:
        """Return a znode and everything below it, down to `depth`; empty if it does not exist.

        The lowest level also has the names of its children.
        """
        tree: dict[str, Znode] = {}
        level = [root]
        for below in range(depth + 1):
            found = self._read_level(level)
            tree |= found
            if below == depth:
                break
            level = [
                f"{path.rstrip('/')}/{child}"
                for path, znode in found.items()
                for child in znode.children
            ]
        return tree

    def _read_level(self, paths: Sequence[str]) -> dict[str, Znode]:
        """Read data and children of each; a znode that was deleted meanwhile is left out."""
        from kazoo.exceptions import NoAuthError, NoNodeError

        found: dict[str, Znode] = {}
        for part in split(paths, ASKED_AT_ONCE):
            asked = [(path, self._client.get_async(path)) for path in part]
            parents = []
            for path, answer in asked:
                try:
                    data, stat = self._ask(answer)
                except NoNodeError:
                    continue
                except NoAuthError:
                    found[path] = Znode(unreadable="its ACL does not let us read it")
                    continue
                found[path] = Znode(data or b"", (), stat.version)
                if stat.numChildren:
                    parents.append((path, self._client.get_children_async(path)))
            for path, answer in parents:
                try:
                    children = tuple(self._ask(answer))
                except NoNodeError:
                    del found[path]
                    continue
                except NoAuthError:
                    found[path] = Znode(unreadable="its ACL does not let us list its children")
                    continue
                found[path] = Znode(found[path].data, children, found[path].version)
        return found

    def write(self, writes: Sequence[Write]) -> None:
        """Write these znodes, a thousand at a time: all of these or, if one has changed, none.

        Missing parents are created. CliError gives the reason of a failure.
        """
        for part in split(writes, OPERATIONS_AT_ONCE):
            self._create_parents(write.path for write in part if write.version is None)
            transaction = self._client.transaction()
            for write in part:
                if write.version is None:
                    transaction.create(write.path, write.data)
                else:
                    transaction.set_data(write.path, write.data, version=write.version)
            self._commit(transaction, part)

    def _commit(self, transaction: Any, writes: Sequence[Write]) -> None:
        """Check each result: a transaction that failed does not raise."""
        from kazoo.exceptions import KazooException, RolledBackError, RuntimeInconsistency

        if not self._client.connected:
            raise CliError("the connection to ZooKeeper is lost; nothing more was written")
        results = self._ask(transaction.commit_async())
        for write, result in zip(writes, results, strict=True):
            if isinstance(result, RolledBackError | RuntimeInconsistency):
                continue  # Another operation's failure caused it.
            if isinstance(result, KazooException):
                raise CliError(
                    f"{write.path} and those with it were not written: "
                    f"{type(result).__name__.removesuffix('Error')}",
                    hint="Somebody has changed it meanwhile, or its ACL forbids it. "
                    "Look again with --dry-run.",
                )

    def _create_parents(self, paths: Iterable[str]) -> None:
        """Create the missing parents of these paths; others may create them, too."""
        from kazoo.exceptions import NoAuthError, NodeExistsError

        missing = sorted(
            {
                "/".join(parts[:end])
                for parts in (path.split("/") for path in paths)
                for end in range(2, len(parts))
            }
        )
        for path in missing:
            try:
                self._ask(self._client.create_async(path, b""))
            except NodeExistsError:
                continue
            except NoAuthError:
                raise CliError(f"the ACL of {path}'s parent does not let us create it") from None

    def _ask(self, answer: Any) -> Any:
        """Wait for one answer; errors of the connection become a CliError."""
        from kazoo.exceptions import (
            ConnectionClosedError,
            ConnectionLoss,
            OperationTimeoutError,
            SessionExpiredError,
        )
        from kazoo.handlers.threading import KazooTimeoutError

        lost = (ConnectionClosedError, ConnectionLoss, OperationTimeoutError, SessionExpiredError)
        try:
            return answer.get(timeout=PATIENCE_S)
        except (*lost, KazooTimeoutError) as error:
            raise CliError(
                f"ZooKeeper at {self._ensemble.connect_string} does not answer any more "
                f"({type(error).__name__}); what was being written may be there or not",
                hint="Try again: --dry-run shows what is there.",
            ) from error


def split(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Split into parts of at most `size`."""
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]
