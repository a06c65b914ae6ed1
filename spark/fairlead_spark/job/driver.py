"""The driver: its session, its program or query, its page, and an end that keeps checkpoints."""

import logging
import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from fairlead_spark.job.document import DOCUMENT_VARIABLE, Job
from fairlead_spark.job.progress import describe_query, has_state
from fairlead_spark.job.progress_page import ProgressPage
from fairlead_spark.job.sql_job import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("fairlead_spark.job")
LOOK_S: Final = 0.5
"""Time between two checks of the queries."""
AT_ONCE_S: Final = 0.01
TERMINATION_LOG: Final = Path("/dev/termination-log")
ERROR_BYTES_MAX: Final = 1024
_FORBIDDEN: Final = 'is forbidden: User "system:serviceaccount:'
TERMINATED: Final = 128 + signal.SIGTERM


class StateNotSharedError(Exception):
    """A query keeps state, but executors do not share its place."""


class Driver:
    """Runs one job in this process."""

    def __init__(self, job: Job, document: Path) -> None:
        self._job = job
        self._document = document
        self._spark: SparkSession | None = None
        self._queries: list[dict[str, Any]] = []
        self._problem: Exception | None = None
        self._is_asked_to_end = False
        self._is_over = threading.Event()
        self._page = ProgressPage(self._describe, port=job.progress_port, host=_page_host())

    def run(self) -> int:
        """Run until the job ends, fails, or is asked to end; return the exit code."""
        signal.signal(signal.SIGTERM, self._raise_terminated)
        os.environ[DOCUMENT_VARIABLE] = str(self._document)
        self._page.start()
        print(f"progress at port {self._page.port}", flush=True)
        try:
            spark = self._begin_session()
            threading.Thread(target=self._look_on, name="queries", daemon=True).start()
            self._run_application(spark)
            self._wait_for_queries(spark)
            self._raise_problem()
        except SystemExit as exit:
            if self._is_asked_to_end:
                return _end_as_asked()
            if self._problem is not None:
                # The program ended because its queries were stopped, so it did not succeed.
                _leave_word(self._problem)
                return 1
            return _exit_code(exit)
        except Exception as error:
            if self._is_asked_to_end:
                return _end_as_asked()
            problem = self._problem or error
            _log.exception("the job has failed")
            _leave_word(problem)
            return 1
        finally:
            self._end()
        return 0

    def _begin_session(self) -> "SparkSession":
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName(self._job.name)
        for name, value in self._job.conf.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        return self._spark

    def _run_application(self, spark: "SparkSession") -> None:
        if self._job.sql is not None:
            start_query(spark, self._job)
            return
        file = str(self._job.file)
        if not Path(file).is_file():
            raise FileNotFoundError(f"there is no program {file}")
        sys.argv = [file, *self._job.arguments]
        # Let the program import modules in its folder, as `python FILE` does.
        sys.path.insert(0, str(Path(file).resolve().parent))
        runpy.run_path(file, run_name="__main__")

    def _wait_for_queries(self, spark: "SparkSession") -> None:
        """Wait for queries that the program has started and not waited for itself."""
        while queries := spark.streams.active:
            for query in queries:
                query.awaitTermination(LOOK_S)
            self._raise_problem()
            # A query that failed while this waited for another one is not active any more.
            self._raise_failed()
        self._raise_failed()

    def _look_on(self) -> None:
        """Update the page in a thread, and detect what cannot go on."""
        while not self._is_over.wait(LOOK_S):
            try:
                self._look()
            except StateNotSharedError as error:
                self._problem = error
                self._stop_queries()
            except Exception:
                # The session is ending, or busy: the next check will tell.
                _log.debug("the queries could not be looked at", exc_info=True)

    def _look(self) -> None:
        if self._spark is None:
            return
        described = []
        for query in self._spark.streams.active:
            progress = query.lastProgress
            if progress is None:
                described.append({"id": str(query.id), "name": query.name, "batchId": None})
                continue
            described.append(describe_query(progress))
            self._check_state(query.name or query.id, progress)
        # The last progress of queries that have ended is kept.
        self._queries = described or self._queries

    def _check_state(self, query: str, progress: Any) -> None:
        master = str(self._job.conf.get("spark.master", "local"))
        is_local = master.startswith("local")
        if has_state(progress) and not self._job.is_checkpoint_shared and not is_local:
            raise StateNotSharedError(
                f"the query {query} keeps state, and its checkpoint lies where only the driver "
                "reaches it: an executor that is replaced would lose it. Set checkpoint.uri, or "
                "checkpoint.claim.shared for a volume of several nodes"
            )

    def _describe(self) -> dict[str, Any]:
        return {
            "version": 1,
            "name": self._job.name,
            "run": self._job.run,
            "queries": self._queries,
            "error": "" if self._problem is None else str(self._problem),
        }

    def _raise_terminated(self, _number: int, _frame: FrameType | None) -> None:
        # Py4J, in which programs wait, replaces an exception that is raised here, and a program may
        # catch it. An exception that passes Py4J would leave an answer that is later misread.
        self._is_asked_to_end = True
        raise _TerminatedError

    def _raise_problem(self) -> None:
        if self._is_asked_to_end:
            raise _TerminatedError
        if self._problem is not None:
            raise self._problem

    def _raise_failed(self) -> None:
        """Raise the error of a query that failed, even if the program did not wait for it."""
        if self._spark is None:
            return
        # Raises the error of a failed query at once, also of one that this loop never saw, because
        # it failed between two checks.
        self._spark.streams.awaitAnyTermination(AT_ONCE_S)

    def _stop_queries(self) -> None:
        if self._spark is None:
            return
        for query in self._spark.streams.active:
            query.stop()

    def _end(self) -> None:
        self._is_over.set()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._spark is not None:
            started = time.monotonic()
            try:
                self._stop_queries()
                self._spark.stop()
            except Exception:
                # The JVM may have ended first; checkpoints are written batch by batch.
                _log.warning("the session did not end well", exc_info=True)
            _log.info("the session ended within %.1f s", time.monotonic() - started)
        self._page.stop()


class _TerminatedError(Exception):
    """Raised in the main thread by SIGTERM, also out of a blocking call."""


def _end_as_asked() -> int:
    _log.info("asked to end: stopping the queries, their checkpoints stay")
    return TERMINATED


def _exit_code(exit: SystemExit) -> int:
    if exit.code is None:
        return 0
    if isinstance(exit.code, int):
        return exit.code
    print(exit.code, file=sys.stderr)
    _leave_word(Exception(str(exit.code)))
    return 1


def _leave_word(error: BaseException) -> None:
    """Write the reason for Kubernetes, in the few words that a status can have."""
    text = describe_error(error)
    if TERMINATION_LOG.exists():
        TERMINATION_LOG.write_bytes(text.encode()[:ERROR_BYTES_MAX])


def describe_error(error: BaseException) -> str:
    """Return the cause in a line or two.

    For an error that passed through the JVM, it is the message of the user's code.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [
        line
        for line in lines
        if not line.startswith(("at ", "JVM stacktrace", "Traceback", "File ", "..."))
    ]
    head = f"{type(error).__name__}: {told[0]}" if told else type(error).__name__
    # The last line of a Python traceback in it is the error of the program or of the source.
    inner = next((line for line in reversed(told) if "Error: " in line), "")
    # Kubernetes refuses to create an executor: the line names the account and the missing right.
    refusal = next((line for line in told if _FORBIDDEN in line), "")
    inner = refusal or inner
    return head if not inner or inner in head else f"{head} … {inner}"


def _page_host() -> str:
    """Return the page's address: in a pod any client may connect, on a laptop only itself."""
    return os.environ.get("POD_IP") or "127.0.0.1"
