"""The commands of docs/backup.md for an object store, run as they are written."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from local_cluster import ROOT
from reigning_candidate import NAMESPACE, Candidate, play
from short_reign import reign

from fairlead_controller.decisions.events import AllocateProducerIds
from fairlead_kube.kinds import LOG_CLUSTER

if TYPE_CHECKING:
    from object_store import ObjectStoreServer

BLOCK = re.compile(r"<!-- tested: s3 -->\n```\n(.*?)```", re.DOTALL)
ENDPOINT = "http://localhost:9000"


def test_the_blocks_run_one_after_the_other(aws: ObjectStoreServer, tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "backup.md").read_text())
    assert len(blocks) == 3
    # kubectl itself, which not every machine has, would only look for the same command.
    script = "".join(blocks).replace(ENDPOINT, aws.url).replace("kubectl ", "kubectl-")
    assert aws.url in script
    bucket = aws.make_bucket("backups")
    asyncio.run(reign(tmp_path / ".fairlead" / "controller", AllocateProducerIds(0)))

    async def story(candidate: Candidate) -> None:
        await candidate.reigning("events")
        await candidate.decide("events")
        await candidate.server.put(candidate.path(LOG_CLUSTER), "events")
        done = await asyncio.to_thread(run, script, tmp_path, candidate.server.url)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        for said in ("Exported", "Restored", "Removed 0 old exports.", "Imported"):
            assert said in done.stdout

    play(story, "events")
    backup, export = bucket.list_keys()
    assert re.fullmatch(r"events/events-\d{8}T\d{6}\.\d{6}Z\.json", backup)
    assert export == "events/metadata.json"
    assert (tmp_path / ".fairlead" / "controller").is_dir()


def run(script: str, folder: Path, api_server: str) -> subprocess.CompletedProcess[str]:
    """Run what a person types in a folder, whose kubectl speaks to an API server."""
    kubeconfig = folder / "kubeconfig"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": api_server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}
        ],
        "current-context": "c",
    }
    kubeconfig.write_text(json.dumps(config))
    programs = Path(sys.executable).parent
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{programs}:{os.environ['PATH']}",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
