"""`fairlead metadata export|restore`: a controller that lost its folder gets it back."""

import json
import shutil
from pathlib import Path

from local_cluster import Cli
from waiting import wait_until


def test_a_lost_store_is_rebuilt_from_an_export(cli: Cli, tmp_path: Path) -> None:
    assert cli.up().code == 0
    cli.ok("topic", "create", "kept", "--partitions", "3", "--config", "retention.ms=86400000")
    lines = "".join(f"{number}\n" for number in range(300))
    cli.ok("produce", "kept", stdin=lines)
    file = tmp_path / "metadata.json"
    assert "3 brokers" in cli.ok("metadata", "export", str(file)).out
    document = json.loads(file.read_text())
    assert json.loads(cli.ok("metadata", "export", "-").out)["clusterId"] == document["clusterId"]

    running = cli("metadata", "restore", str(file))
    assert (running.code, "is held by pid" in running.err) == (1, True)
    cli.ok("down")
    taken = cli("metadata", "restore", str(file))
    assert taken.code == 1
    assert "there is metadata already" in taken.err
    assert f"mv {cli.data / 'controller'}" in taken.err
    shutil.rmtree(cli.data / "controller")
    refused = cli.up()
    assert (refused.code, "and no metadata" in refused.err) == (2, True), refused
    assert "fairlead metadata restore metadata.json" in refused.err
    assert not (cli.data / "controller").exists()

    restored = cli.ok("metadata", "restore", str(file))
    assert document["clusterId"] in restored.out
    assert cli.up().code == 0
    wait_until(lambda: all(topic["offline"] == 0 for topic in cli.status()["topics"]))
    read = cli.ok("consume", "kept", "--count", "300", "--timeout-ms", "30000").out.split()
    assert sorted(map(int, read)) == list(range(300))
    (topic,) = cli.ok("topic", "describe", "kept", "-o", "json").json
    assert topic["configs"] == {"retention.ms": "86400000"}
    cli.ok("produce", "kept", stdin="one more\n")


def test_what_is_no_export_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    missing = cli("metadata", "export", "-")
    assert missing.code == 1
    assert f"cannot export the metadata of {cli.data}" in missing.err
    for text in ("not JSON", "[]", '{"format": "something else"}'):
        file = tmp_path / "wrong.json"
        file.write_text(text)
        refused = cli("metadata", "restore", str(file))
        assert (refused.code, "Traceback" in refused.err) == (2, False), refused
    assert cli("metadata", "restore", str(tmp_path / "none.json")).code == 2
    assert not list((cli.data / "controller").glob("*"))
