"""No child that works on a log outlives its broker."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from waiting import wait_until

from fairlead_broker.log.compaction.cleaner_worker import encode_order
from fairlead_broker.log.compaction.cleaning_plan import SegmentFacts
from fairlead_broker.log.compaction.log_cleaning import CleaningOrder
from fairlead_broker.log.recovery.start import RecoveryOrder

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", sys.argv[1]], stdin=int(sys.argv[2]))
print(child.pid, flush=True)
child.wait()
"""
NOWHERE = "/nowhere/to/be/found"
ORDERS = {
    "recovery.worker": json.dumps(asdict(RecoveryOrder(NOWHERE, 0, 0, 4096))).encode() + b"\n",
    "compaction.cleaner_worker": encode_order(
        CleaningOrder(NOWHERE, [SegmentFacts(0, 1, 0, 0, -1, 1)], 0, 0, 0, 1, 1, 1, 1)
    ),
}


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux promises it")
@pytest.mark.parametrize("worker", list(ORDERS))
def test_a_worker_dies_with_its_parent_though_its_input_goes_on(worker: str) -> None:
    reader, writer = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, f"fairlead_broker.log.{worker}", str(reader)],
        stdout=subprocess.PIPE,
        pass_fds=(reader,),
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.write(writer, ORDERS[worker])
    assert NOWHERE in parent.stdout.readline().decode()
    parent.kill()
    parent.wait()
    try:
        wait_until(lambda: not is_alive(child), "the worker lives on")
    finally:
        if is_alive(child):
            os.kill(child, signal.SIGKILL)
        os.close(reader)
        os.close(writer)
        parent.stdout.close()
