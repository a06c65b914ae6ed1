"""The commands of docs/migration.md, run as they are written."""

import os
import re
import subprocess
import sys
from pathlib import Path

from kafka_trees import build_tree
from local_cluster import ROOT
from remote_cluster import running_remote
from znode_trees import put_tree
from zookeeper_ensemble import ZooKeeperEnsemble

BLOCK = re.compile(r"<!-- tested: zookeeper -->\n```\n(.*?)```", re.DOTALL)
PLACE = "localhost:2181/kafka"


def test_every_block_runs_and_prints_what_the_page_shows(
    zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "migration.md").read_text()
    blocks = BLOCK.findall(page)
    assert len(blocks) == 3
    with zookeeper.client(zookeeper_chroot) as client:
        put_tree(client, build_tree("2.3"))
    with running_remote(tmp_path / "data") as remote:
        remote.ok("topic", "create", "orders", "--partitions", "3", "--replication-factor", "1")
        for partition in range(3):
            lines = "".join(f"{number}\n" for number in range(10))
            remote.ok("produce", "orders", "--partition", str(partition), stdin=lines)
        environment = os.environ | {
            "FAIRLEAD_BOOTSTRAP": remote.bootstrap,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        printed = ""
        for block in blocks:
            assert PLACE in block
            text = block.replace(PLACE, zookeeper.connect_string(zookeeper_chroot))
            result = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert result.returncode == 0, f"{text}\n{result.stdout}\n{result.stderr}"
            printed += result.stdout + result.stderr
    shown = [
        line.rstrip() for line in page.splitlines() if line.startswith((" billing", "Nothing"))
    ]
    assert len(shown) == 4
    assert [line for line in shown if line not in printed] == []
