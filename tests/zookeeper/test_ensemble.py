"""The ensemble of other tests serves, loses its leader, and comes back whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waiting import wait_until

if TYPE_CHECKING:
    from zookeeper_ensemble import ZooKeeperEnsemble


def test_what_was_written_outlives_the_leader_and_a_stop_of_all(
    zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    with zookeeper.client(zookeeper_chroot) as client:
        client.create("/a", b"1")
    leader = zookeeper.leader
    leader.kill()
    assert zookeeper.leader is not leader
    with zookeeper.client(zookeeper_chroot) as client:
        client.set("/a", b"2")
    zookeeper.stop()
    assert not any(server.mode for server in zookeeper.servers)
    zookeeper.start()
    with zookeeper.client(zookeeper_chroot) as client:
        assert client.get("/a")[0] == b"2"


def test_a_paused_leader_is_replaced_and_follows_later(
    zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    paused = zookeeper.leader
    paused.pause()
    assert paused.mode == ""
    assert zookeeper.leader is not paused
    paused.resume()
    wait_until(lambda: paused.mode == "follower")
