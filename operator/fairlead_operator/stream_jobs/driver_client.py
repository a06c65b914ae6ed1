"""A driver, asked over HTTP how it does."""

from typing import Any, Final

import aiohttp

from fairlead_operator.stream_jobs.job_status import JobProgress, QueryProgress
from fairlead_operator.stream_jobs.names import PROGRESS_PORT

REQUEST_TIMEOUT_S: Final = 2.0
ANSWER_BYTES_MAX: Final = 262_144


class DriverError(Exception):
    """The driver does not answer, or not in words that are understood."""


class DriverClient:
    """Made in a running loop, for all drivers."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        )

    async def close(self) -> None:
        """Give up the connections."""
        await self._session.close()

    async def progress(self, address: str) -> JobProgress:
        """Ask a driver at this IP address."""
        host = f"[{address}]" if ":" in address else address
        try:
            async with self._session.get(f"http://{host}:{PROGRESS_PORT}/progress") as response:
                if response.status != 200:
                    raise DriverError(f"the driver answers {response.status}")
                if (response.content_length or 0) > ANSWER_BYTES_MAX:
                    raise DriverError(f"an answer of {response.content_length} bytes")
                return read_progress(await response.json())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise DriverError(repr(error)) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DriverError(f"an answer of another version: {error!r}") from error


def read_progress(answer: dict[str, Any]) -> JobProgress:
    """Read what a driver says; ValueError, KeyError or TypeError where it says something else."""
    return JobProgress(
        queries=tuple(
            QueryProgress(
                id=str(query["id"])[:64],
                name=str(query.get("name") or "")[:253],
                batch_id=_count(query.get("batchId")),
                rows_per_second=_count(query.get("rowsPerSecond")),
                lag=_count(query.get("lag")),
            )
            for query in answer["queries"]
        ),
        error=str(answer.get("error") or ""),
    )


def _count(value: Any) -> int | None:
    return None if value is None else max(int(value), 0)
