"""franz-go's own test suite, against this cluster.

Its authors did not write it for Fairlead. In groups of both protocols, members consume, transform
and produce while others come and go, with and without transactions; there are also some hundred
small tests.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

import pytest
from applications import PROGRAMS
from compiled_programs import MissingError, build
from exactly_once_run import SETTINGS
from needed_tools import missing
from proofs import OTHER_SUITES

from fairlead_bench.peers.cluster_state import wait_until_serving
from fairlead_bench.peers.fairlead_cluster import FairleadCluster

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE: Final = "github.com/twmb/franz-go/pkg/kgo"
RECORDS: Final = 10_000
TIMEOUT_S: Final = 600
NOT_OURS: Final = (
    "TestOptValuesCoversEveryOption",  # It reads the folder of its source code.
    "Test848RegexBrokerResolves",  # It takes records of `__consumer_offsets` for its own.
)
SHOWN: Final = 60

pytestmark = [
    *OTHER_SUITES.marks,
    pytest.mark.slow,
    # The suite has its own limit, and reports the test that reached it.
    pytest.mark.timeout(900),
]


def test_franz_go_passes_its_own_tests(tmp_path: Path) -> None:
    binary = tmp_path / "kgo.test"
    try:
        build(["go", "test", "-c", "-o", str(binary), PACKAGE], PROGRAMS / "franz")
    except MissingError as error:
        missing(str(error))
    with FairleadCluster(tmp_path / "cluster", SETTINGS) as cluster:
        cluster.start()
        wait_until_serving(cluster)
        command = [str(binary), f"-test.timeout={TIMEOUT_S}s", f"-test.skip={'|'.join(NOT_OURS)}"]
        ended = subprocess.run(
            [*command, "-test.v"],
            cwd=tmp_path,
            env=os.environ | {"KGO_SEEDS": cluster.bootstrap, "KGO_TEST_RECORDS": str(RECORDS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S + 60,
            check=False,
        )
    lines = ended.stdout.splitlines()
    words = [line for line in lines if "_test.go:" in line or line.lstrip().startswith("--- FAIL")]
    assert ended.returncode == 0, "\n".join(words[-SHOWN:] or lines[-SHOWN:])
    assert sum(line.startswith("--- PASS: Test") for line in lines) > 100
