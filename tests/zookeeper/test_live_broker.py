"""A broker's process and ZooKeeper: its id is taken before it registers, and given back."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import NoNodeError
from waiting import wait_until

from fairlead_zookeeper.znodes import CandidateRecord, candidate_path, candidate_value

if TYPE_CHECKING:
    from zookeeper_ensemble import ZooKeeperEnsemble

DEADLINE_S = 60.0
IDS = "/brokers/ids/0"


def test_the_id_of_a_broker_is_in_zookeeper_while_it_runs(
    zookeeper: "ZooKeeperEnsemble", zookeeper_chroot: str, make_cluster: Callable[..., Any]
) -> None:
    settings = {"zookeeper.connect": zookeeper.connect_string(zookeeper_chroot)}
    cluster = make_cluster(settings=settings)
    (broker,) = cluster.brokers
    with zookeeper.client(zookeeper_chroot) as client:
        data, stat = client.get(IDS)
        assert json.loads(data)["host"] == "127.0.0.1"
        assert stat.ephemeralOwner
        other = cluster.make_broker(0, f"--set=log.dirs={cluster.directory / 'other'}", **settings)
        other.begin()
        assert other.process is not None
        assert other.process.wait(DEADLINE_S) == 1
        assert "/brokers/ids/0 belongs to another broker that is alive" in other.last_words()
        other.kill()
        assert broker.get("/readyz")[0] == 200, "the first one is not fenced by the second"

        broker.kill()
        broker.start()
        assert client.get(IDS)[1].ephemeralOwner != stat.ephemeralOwner

        assert broker.stop() == 0
        with pytest.raises(NoNodeError):
            client.get(IDS)


def test_a_broker_finds_its_controller_in_zookeeper(
    zookeeper: "ZooKeeperEnsemble", zookeeper_chroot: str, make_cluster: Callable[..., Any]
) -> None:
    cluster = make_cluster(brokers=0)
    host, port = cluster.controller.ready["session"].split(":")
    broker = cluster.make_broker(
        1, **{"zookeeper.connect": zookeeper.connect_string(zookeeper_chroot)}
    )
    # Where it would look without ZooKeeper, there is none.
    del broker._settings["fairlead.controller.sessions"]
    with zookeeper.client(zookeeper_chroot) as client:
        broker.begin()
        wait_until(lambda: client.exists("/brokers/ids/1"), broker.last_words)
        record = CandidateRecord("controller-10000", 10000, host, int(port), 0)
        path = candidate_path(record.identity)
        client.create(path, candidate_value(record), ephemeral=True, makepath=True)
        broker.wait_ready()
        client.delete(path)
        assert broker.get("/readyz")[0] == 200
    assert broker.stop() == 0


def test_a_user_of_zookeeper_in_a_file_that_everybody_may_read_is_refused(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster(brokers=0)
    digest = cluster.directory / "zookeeper-user"
    digest.write_text("fairlead:what only it knows")
    digest.chmod(0o644)
    broker = cluster.make_broker(
        2,
        **{
            "zookeeper.connect": "127.0.0.1:1",
            "fairlead.zookeeper.digest.file": str(digest),
        },
    )
    broker.begin()
    assert broker.process is not None
    assert broker.process.wait(DEADLINE_S) == 1
    assert "its mode is 0644" in broker.last_words()
    assert "what only it knows" not in broker.last_words()
    broker.kill()
