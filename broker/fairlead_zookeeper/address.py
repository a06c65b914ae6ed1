"""Addresses of a ZooKeeper ensemble, and what a client needs to connect. Pure.

`HOST:PORT[,HOST:PORT…][/CHROOT]` is Kafka's `zookeeper.connect`; `zookeeper://` may come before it.
The chroot applies to the whole list. With a wrong chroot a client sees an empty tree and no error.
So the rule is implemented once, here, and the callers check the result.
"""

from dataclasses import dataclass, field
from typing import Final

from fairlead_model.host_address import join_address, split_address

SCHEME: Final = "zookeeper://"
DEFAULT_PORT: Final = 2181
DEFAULT_SESSION_TIMEOUT_MS: Final = 6000
"""Kafka's `zookeeper.session.timeout.ms` before 2.5. Servers raise it to at least two ticks."""


class ZooKeeperAddressError(ValueError):
    """A connect string is invalid; the text says why."""


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """Everything that a client needs to know of an ensemble."""

    hosts: tuple[str, ...]
    """A `HOST:PORT` for each server."""
    chroot: str = ""
    """Empty, or a path that begins with a slash and does not end with one."""
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    digest: str | None = field(default=None, repr=False)
    """`USER:PASSWORD` for the scheme `digest`. It is sent in plain text, so trust the network."""
    sets_acl: bool = False
    """Kafka's `zookeeper.set.acl`: created znodes belong to the user in `digest`. Others may read
    Kafka's znodes, and nothing under `/fairlead`."""

    @property
    def connect_string(self) -> str:
        """The connect string, with the chroot and without the password."""
        return ",".join(self.hosts) + self.chroot


def parse_connect_string(
    text: str,
    *,
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
    digest: str | None = None,
    sets_acl: bool = False,
) -> ZooKeeperAccess:
    """Read `HOST:PORT,…/CHROOT`, with or without `zookeeper://`; ZooKeeperAddressError."""
    rest = text.strip().removeprefix(SCHEME)
    listed, slash, path = rest.partition("/")
    if "://" in rest:
        raise ZooKeeperAddressError(f"{text!r} is no address of ZooKeeper: write {SCHEME}HOST:PORT")
    hosts = tuple(_host(each.strip(), text) for each in listed.split(",") if each.strip())
    if not hosts:
        raise ZooKeeperAddressError(
            f"{text!r} names no server: write HOST:PORT[,HOST:PORT…]/CHROOT"
        )
    parts = [part for part in path.rstrip("/").split("/") if slash and path]
    if any(part in {"", ".", ".."} for part in parts):
        raise ZooKeeperAddressError(f"{text!r} has the bad chroot {slash + path!r}")
    if sets_acl and not digest:
        raise ZooKeeperAddressError("ACLs need a user: give the digest USER:PASSWORD, too")
    if digest is not None and ":" not in digest:
        raise ZooKeeperAddressError("a digest is USER:PASSWORD")
    chroot = "".join(f"/{part}" for part in parts)
    return ZooKeeperAccess(hosts, chroot, session_timeout_ms, digest, sets_acl)


def _host(server: str, text: str) -> str:
    has_port = ":" in server.rpartition("]")[2]
    try:
        name, port = split_address(server if has_port else f"{server}:{DEFAULT_PORT}")
    except ValueError:
        name, port = "", 0
    if not name or not port:
        raise ZooKeeperAddressError(f"{text!r} names the bad server {server!r}: write HOST:PORT")
    return join_address(name, port)
