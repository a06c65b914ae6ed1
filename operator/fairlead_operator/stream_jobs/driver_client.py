"""Asks a driver over HTTP for its progress."""

from typing import Any, Final

from fairlead_operator.pod_http import PodAnswerError, ask_pod
from fairlead_operator.resources.stream_job import ERROR_LENGTH_MAX, QUERIES_MAX
from fairlead_operator.stream_jobs.job_status import JobProgress, QueryProgress
from fairlead_operator.stream_jobs.names import PROGRESS_PORT

REQUEST_TIMEOUT_S: Final = 2.0
COUNT_MAX: Final = 2**53


class DriverError(Exception):
    """The driver does not answer, or its answer is malformed."""


class DriverClient:
    """The client of all drivers."""

    async def progress(self, address: str) -> JobProgress:
        """Ask the driver at this IP address."""
        try:
            answer = await ask_pod(address, PROGRESS_PORT, "/progress", timeout_s=REQUEST_TIMEOUT_S)
            if answer.status != 200:
                raise DriverError(f"the driver answers {answer.status}")
            return read_progress(answer.json())
        except PodAnswerError as error:
            raise DriverError(str(error)) from error
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise DriverError(f"an answer of another version: {error!r}") from error


def read_progress(answer: dict[str, Any]) -> JobProgress:
    """Read a driver's answer; ValueError, KeyError or TypeError if it is malformed."""
    return JobProgress(
        queries=tuple(
            QueryProgress(
                id=str(query["id"])[:64],
                name=str(query.get("name") or "")[:253],
                batch_id=_count(query.get("batchId")),
                rows_per_second=_count(query.get("rowsPerSecond")),
                lag=_count(query.get("lag")),
            )
            for query in answer["queries"][:QUERIES_MAX]
        ),
        error=str(answer.get("error") or "")[:ERROR_LENGTH_MAX],
    )


def _count(value: Any) -> int | None:
    return None if value is None else min(max(int(value), 0), COUNT_MAX)
