"""`fairlead up --store zookeeper://…`: a cluster moves from files into ZooKeeper, and lives on."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from local_cluster import Cli
from waiting import wait_until

if TYPE_CHECKING:
    from zookeeper_ensemble import ZooKeeperEnsemble

pytestmark = pytest.mark.slow


def test_a_cluster_moves_into_zookeeper_with_its_records(
    cli: Cli, tmp_path: Path, zookeeper: "ZooKeeperEnsemble", zookeeper_chroot: str
) -> None:
    store = f"zookeeper://{zookeeper.connect_string(zookeeper_chroot)}"
    assert cli.up().code == 0
    cli.ok("topic", "create", "kept", "--partitions", "3")
    cli.ok("produce", "kept", stdin="".join(f"{number}\n" for number in range(300)))
    file = str(tmp_path / "metadata.json")
    cli.ok("metadata", "export", file)
    cluster_id = json.loads(Path(file).read_text())["clusterId"]
    cli.ok("down")

    refused = cli.up("--store", store)
    assert refused.code == 2
    assert "keeps its metadata in files" in refused.err
    assert f"fairlead metadata restore metadata.json --store {store}" in refused.err
    cli.ok("metadata", "restore", file, "--store", store)
    again = cli("metadata", "restore", file, "--store", store)
    assert (again.code, "holds metadata already" in again.err) == (1, True)
    shutil.rmtree(cli.data / "controller")

    started = cli.up("--store", store)
    assert started.code == 0, started
    wait_until(lambda: all(topic["offline"] == 0 for topic in cli.status()["topics"]))
    read = cli.ok("consume", "kept", "--count", "300", "--timeout-ms", "30000").out.split()
    assert sorted(map(int, read)) == list(range(300))
    with zookeeper.client(zookeeper_chroot) as client:
        assert sorted(client.get_children("/brokers/ids")) == ["0", "1", "2"]
        topics = set(client.get_children("/brokers/topics"))
        assert "kept" in topics

    # How long it takes depends on the machine; what is lost does not.
    drill = cli("drill", "--target", "controller", "--fault", "kill", "--runs", "1", "-o", "json")
    found = drill.json
    lost = [found["check"][name] for name in ("lost", "duplicated", "reordered")]
    assert lost == [0, 0, 0], found
    assert json.loads(cli.ok("metadata", "export", "-").out)["clusterId"] == cluster_id
    cli.ok("down")

    elsewhere = cli.up("--store", "zookeeper://127.0.0.1:1/elsewhere")
    assert (elsewhere.code, "keeps its metadata at" in elsewhere.err) == (2, True)
    assert cli.up().code == 0, "the folder remembers where its metadata is"
    cli.ok("produce", "kept", stdin="one more\n")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:2181/x", "is not zookeeper://HOST:PORT"),
        ("zookeeper://127.0.0.1:port/x", "bad server"),
        ("zookeeper://", "names no server"),
        ("zookeeper://127.0.0.1//x", "bad chroot"),
    ],
)
def test_a_wrong_address_is_explained(cli: Cli, address: str, words: str) -> None:
    for refused in (
        cli.up("--store", address),
        cli("metadata", "export", "-", "--store", address),
        cli("metadata", "restore", "-", "--store", address, stdin="{}"),
        cli("metadata", "confirm", "--store", address),
    ):
        assert refused.code == 2, refused
        assert words in refused.err
        assert "Traceback" not in refused.err
