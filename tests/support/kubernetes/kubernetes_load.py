"""An idempotent producer in the client pod, while a test causes faults or changes something."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes_commands import Kubectl

SOURCE = Path(__file__).with_name("pod_load.py")
VERDICT_S = 120.0
"""Limit for reading back everything that was acknowledged."""


@contextmanager
def under_load(
    kubectl: Kubectl,
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    rate: int,
    stop_file: str,
) -> Iterator[dict[str, Any]]:
    """Yield once records have been acknowledged; the verdict is set after the block.

    `stop_file` is a path in the client pod, for this load only.
    """
    verdict: dict[str, Any] = {}
    command = ["kubectl", "-n", kubectl.namespace, "exec", "-i", "client", "--", "python", "-"]
    command += [bootstrap, topic, str(partitions), str(rate), stop_file]
    with (
        SOURCE.open() as source,
        subprocess.Popen(
            command, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        # The load itself has a limit, and gives up. It prints nothing more before it is stopped.
        first = process.stdout.readline()
        if not first:
            _, err = process.communicate(timeout=VERDICT_S)
            raise AssertionError(f"the load has not begun: {err}")
        assert json.loads(first) == {"begun": True}, first
        try:
            yield verdict
        finally:
            # It may be told twice.
            kubectl.exec("client", "touch", stop_file, only_reads=True)
            out, err = process.communicate(timeout=VERDICT_S)
        assert process.returncode == 0, err
        verdict.update(json.loads(out.splitlines()[-1]))
