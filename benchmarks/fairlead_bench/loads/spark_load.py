"""One Spark session that reads topics with one format, drops the rows, and reports the time.

Each format has its own process, because memory and start are measured, too. Arguments come as JSON,
the result is the last line of standard output.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead_bench.loads.process_usage import read_cpu, read_memory_mb


def main() -> None:
    arguments = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = make_session(arguments)
    ready_s = time.monotonic()
    reads: dict[str, list[tuple[float, float]]] = {}
    first = read(session, arguments, arguments["small"]).limit(1).collect()
    first_row_s = time.monotonic() - ready_s
    if len(first) != 1:
        raise RuntimeError("the topic is empty")
    for name, topic in arguments["topics"].items():
        reads[name] = []
        # The first read does not count: compilers and workers start during it.
        for repetition in range(-1, arguments["repetitions"]):
            rows = read(session, arguments, topic)
            started_s, cpu_s = time.monotonic(), total(lambda pid: read_cpu([pid]))
            rows.write.format("noop").mode("overwrite").save()
            if repetition >= 0:
                used_s = total(lambda pid: read_cpu([pid])) - cpu_s
                reads[name].append((time.monotonic() - started_s, used_s))
    memory_mb = total(lambda pid: read_memory_mb(pid, "VmHWM"))
    session.stop()
    print(json.dumps({"first_row_s": first_row_s, "reads": reads, "memory_mb": memory_mb}))


def make_session(arguments: dict[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": arguments["folder"],
        "spark.jars": ",".join(arguments["jars"]),
    }
    builder = SparkSession.builder.master(f"local[{arguments['tasks']}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def read(session: Any, arguments: dict[str, Any], topic: str) -> Any:
    options = {"kafka.bootstrap.servers": arguments["bootstrap"], "subscribe": topic}
    return (
        session.read.format(arguments["format"]).options(**options, **arguments["options"]).load()
    )


def total(read_one: Callable[[int], float]) -> float:
    """Return the sum over Spark's processes; a process that has just ended counts as 0."""
    found = 0.0
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError, ValueError):
            found += read_one(pid)
    return found


def descendants(pid: int) -> list[int]:
    """Return the JVM below this process, and the Python workers below the JVM."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


if __name__ == "__main__":
    main()
