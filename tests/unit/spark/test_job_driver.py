"""How a job's driver ends, with a session that is made of nothing but one query."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fairlead_spark.job import driver
from fairlead_spark.job.document import Job
from fairlead_spark.job.driver import Driver, describe_error

SESSION = "session_of_the_test"
STATEFUL = {"id": "1", "name": "delays", "batchId": 0, "stateOperators": [{"numRowsTotal": 3}]}
WAIT_S = 30


class OneQuery:
    """A streaming query that goes on until it is stopped."""

    id = "1"
    name = "delays"
    session: Any = None

    def __init__(self, progress: dict[str, Any]) -> None:
        self.lastProgress = progress
        self.is_stopped = threading.Event()

    def awaitTermination(self, timeout_s: float = WAIT_S) -> bool:
        return self.is_stopped.wait(timeout_s)

    def stop(self) -> None:
        self.is_stopped.set()


class Session:
    """What a driver uses of a SparkSession."""

    def __init__(self, query: OneQuery) -> None:
        self.query = query
        self.query.session = self
        self.streams = self
        self.failure: Exception | None = None

    @property
    def active(self) -> list[OneQuery]:
        return [] if self.query.is_stopped.is_set() else [self.query]

    def awaitAnyTermination(self, _timeout_s: float) -> bool:
        if self.failure is not None:
            raise self.failure
        return True

    def stop(self) -> None:
        self.query.stop()


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A driver owns its process: what it changes there is put back."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("FAIRLEAD_JOB", "")
    monkeypatch.setattr(driver, "LOOK_S", 0.01)
    monkeypatch.setattr(driver, "TERMINATION_LOG", tmp_path / "termination-log")
    (tmp_path / "termination-log").touch()
    yield
    signal.signal(signal.SIGTERM, before)


def run(
    program: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    progress: dict[str, Any] = STATEFUL,
    **job: Any,
) -> tuple[int, str]:
    """The exit code of a job with this program, and what it told Kubernetes."""
    session = Session(OneQuery(progress))
    module: Any = ModuleType(SESSION)
    module.query = session.query
    monkeypatch.setitem(sys.modules, SESSION, module)
    builder = SimpleNamespace(getOrCreate=lambda: session)
    builder.appName = builder.config = lambda *_: builder
    monkeypatch.setattr("pyspark.sql.SparkSession", SimpleNamespace(builder=builder), raising=True)
    file, document = folder / "program.py", folder / "job.json"
    file.write_text(f"from {SESSION} import query\n{program}\n")
    document.write_text(json.dumps({}))
    described = Job("delays", "demo:9092", "delays", file=str(file), **job)
    code = Driver(described, document).run()
    return code, driver.TERMINATION_LOG.read_text()


ON_A_CLUSTER = {"conf": {"spark.master": "k8s://https://api:443"}}


@pytest.mark.parametrize("how", ["sys.exit(0)", "sys.exit()", "raise SystemExit('done')", "pass"])
def test_a_program_that_ends_after_its_query_was_stopped_has_failed(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query kept state on one node's disk and was stopped: however the program then ends."""
    program = f"import sys\nassert query.awaitTermination()\n{how}"
    code, word = run(program, tmp_path, monkeypatch, **ON_A_CLUSTER)
    assert code == 1
    assert "the query delays keeps state" in word
    assert "checkpoint.claim.shared" in word


@pytest.mark.parametrize(("status", "code"), [("", 0), ("3", 3), ("'no flights today'", 1)])
def test_a_program_that_ends_by_itself_says_how(
    status: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_state = {**STATEFUL, "stateOperators": []}
    found, word = run(
        f"import sys\nsys.exit({status})",
        tmp_path,
        monkeypatch,
        progress=without_state,
        **ON_A_CLUSTER,
    )
    assert found == code
    assert word == ("Exception: no flights today" if code == 1 else "")


def test_a_query_that_failed_before_anybody_looked_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LOOK_S", 30)
    program = "query.session.failure = ValueError('no such topic')\nquery.stop()"
    assert run(program, tmp_path, monkeypatch) == (1, "ValueError: no such topic")


@pytest.mark.parametrize(
    "how", ["raise OSError('an error of Py4J') from error", "sys.exit(1)", "pass"]
)
def test_a_job_that_is_asked_to_end_says_so_whatever_becomes_of_the_error(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Py4J makes another error of what is raised while it waits; programs catch many."""
    program = (
        "import os, signal, sys\n"
        "try:\n    os.kill(os.getpid(), signal.SIGTERM)\n    query.awaitTermination()\n"
        f"except Exception as error:\n    {how}"
    )
    without_state = {**STATEFUL, "stateOperators": []}
    assert run(program, tmp_path, monkeypatch, progress=without_state) == (driver.TERMINATED, "")


def test_state_is_fine_where_executors_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"assert not query.awaitTermination({20 * 0.01})\nquery.stop()"
    assert run(program, tmp_path, monkeypatch, is_checkpoint_shared=True, **ON_A_CLUSTER)[0] == 0
    assert run(program, tmp_path, monkeypatch, conf={"spark.master": "local[2]"})[0] == 0


def test_a_refusal_of_kubernetes_is_told() -> None:
    refusal = (
        "Caused by: io.fabric8.kubernetes.client.KubernetesClientException: Failure executing: GET "
        "at: https://kubernetes.default.svc/api/v1/namespaces/jobs/pods/late-driver. Message: pods "
        '"late-driver" is forbidden: User "system:serviceaccount:jobs:demo-spark" cannot get '
        'resource "pods" in API group "" in the namespace "jobs".'
    )
    error = RuntimeError(
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": org.apache.spark.SparkException: External scheduler cannot be instantiated\n"
        "\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:1)\n"
        f"{refusal}\n"
    )
    text = describe_error(error)
    assert text.startswith("RuntimeError: An error occurred while calling")
    assert 'User "system:serviceaccount:jobs:demo-spark" cannot get' in text
