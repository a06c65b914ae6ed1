"""The session with an old cluster's ZooKeeper: many znodes, conflicts, and servers that go away."""

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from zookeeper_ensemble import ZooKeeperEnsemble

from fairlead_cli.errors import CliError
from fairlead_cli.zookeeper.session import OPERATIONS_AT_ONCE, Session, Write, open_session
from fairlead_zookeeper.address import ZooKeeperAccess, parse_connect_string

ROOT = "/consumers/g/offsets/t"


@pytest.fixture
def kazoo(zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str) -> Iterator[KazooClient]:
    with zookeeper.client(zookeeper_chroot) as client:
        yield client


@pytest.fixture
def ensemble(zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str) -> ZooKeeperAccess:
    return parse_connect_string(zookeeper.connect_string(zookeeper_chroot))


@pytest.fixture
def session(ensemble: ZooKeeperAccess) -> Iterator[Session]:
    with open_session(ensemble) as session:
        yield session


def test_more_znodes_than_fit_into_one_request(session: Session) -> None:
    count = 2 * OPERATIONS_AT_ONCE + 1
    session.write([Write(f"{ROOT}/{n}", str(n).encode(), None) for n in range(count)])
    tree = session.read("/consumers/g", depth=3)
    assert {f"{ROOT}/{n}": str(n).encode() for n in range(count)} == {
        path: znode.data for path, znode in tree.items() if path.startswith(f"{ROOT}/")
    }
    assert set(tree[ROOT].children) == {str(n) for n in range(count)}
    session.write([Write(f"{ROOT}/{n}", b"x", 0) for n in range(count)])
    assert {znode.version for znode in session.read(ROOT, depth=1).values()} == {0, 1}


def test_a_znode_that_was_changed_meanwhile_keeps_all_of_them(
    session: Session, kazoo: KazooClient
) -> None:
    session.write([Write(f"{ROOT}/{n}", b"1", None) for n in range(3)])
    kazoo.set(f"{ROOT}/1", b"2")
    for writes in (
        [Write(f"{ROOT}/{n}", b"9", 0) for n in range(3)],
        [Write(f"{ROOT}/0", b"9", 0), Write(f"{ROOT}/2", b"9", None)],
        [Write(f"{ROOT}/0", b"9", 0), Write(f"{ROOT}/7", b"9", 3)],
    ):
        with pytest.raises(CliError, match="were not written"):
            session.write(writes)
    assert [kazoo.get(f"{ROOT}/{n}")[0] for n in range(3)] == [b"1", b"2", b"1"]


def test_another_server_of_the_list_answers(
    zookeeper: ZooKeeperEnsemble, ensemble: ZooKeeperAccess
) -> None:
    zookeeper.followers[0].kill()
    with open_session(ensemble) as session:
        assert session.read("/", depth=0)["/"].children == ()


def test_servers_that_stop_answering_are_said(
    zookeeper: ZooKeeperEnsemble, session: Session
) -> None:
    session.write([Write("/a", b"1", None)])
    zookeeper.pause()
    try:
        with pytest.raises(CliError, match="does not answer any more"):
            session.read("/a", depth=0)
    finally:
        zookeeper.resume()
