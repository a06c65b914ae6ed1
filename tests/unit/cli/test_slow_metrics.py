"""What is read from the metrics of processes that get no processor for seconds."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from waiting import wait_until

from fairlead_cli.local.cluster_file import ClusterFile, ProcessEntry
from fairlead_cli.local.process_table import identify
from fairlead_cli.rebalance import measured_load
from fairlead_cli.rebalance.measured_load import CounterReading, measure_traffic
from fairlead_cli.whatif.recovery import forecast_recovery

LATE_S = 2.2
"""How long a process may wait for a processor on a busy machine."""
RATE = 1_000_000
ELECTIONS = """\
fairlead_controller_leader_election_seconds_bucket{le="0.1"} 5
fairlead_controller_leader_election_seconds_bucket{le="+Inf"} 5
"""


@contextmanager
def process(name: str, *, delays_s: list[float], status: int = 200) -> Iterator[ProcessEntry]:
    """One whose bytes grow at RATE, and that answers after these times, then at once."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(delays_s.pop(0) if delays_s else 0)
            grown = RATE * time.monotonic()
            page = f'kafka_server_brokertopicmetrics_bytesin_total{{topic="t"}} {grown}\n'
            self.send_response(status)
            self.end_headers()
            self.wfile.write((page + ELECTIONS).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        own = identify(os.getpid())
        assert own is not None
        yield ProcessEntry(
            name=name,
            id=None if name == "controller" else int(name.removeprefix("broker-")),
            pid=own.pid,
            start_time=own.start_time,
            host="127.0.0.1",
            port=0,
            http_port=server.server_address[1],
        )
        server.shutdown()
        thread.join(30)


def cluster_of(controller: ProcessEntry, *brokers: ProcessEntry) -> ClusterFile:
    return ClusterFile("data", 0, 0, None, None, controller, list(brokers))


def test_the_traffic_of_a_late_broker_counts() -> None:
    # A busy machine may keep this process waiting even longer, but not each time.
    delays_s: list[float] = []
    with ExitStack() as stack:
        late, well = (
            stack.enter_context(process(name, delays_s=delays))
            for name, delays in (("broker-0", delays_s), ("broker-1", []))
        )

        def counts() -> bool:
            delays_s[:] = [0, LATE_S]
            traffic, untold = measure_traffic(cluster_of(well, late, well))
            return not untold and min(traffic[each, "t"].bytes_in for each in (0, 1)) > 0

        wait_until(counts)


def test_a_late_broker_distorts_the_traffic_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each broker's bytes belong to the time between its own two readings."""
    readings = iter(
        {broker: CounterReading(at_s, {("t", "bytesin"): RATE * at_s})
         for broker, at_s in enumerate(times)}
        for times in ((10.0, 10.0), (14.0, 11.0))
    )  # fmt: skip
    monkeypatch.setattr(measured_load, "read_counters", lambda _brokers: next(readings))
    monkeypatch.setattr(measured_load, "MEASURED_S", 0.0)
    idle = ProcessEntry("controller", "127.0.0.1", 0, 0)
    traffic, _ = measure_traffic(cluster_of(idle))
    assert [traffic[broker, "t"].bytes_in for broker in (0, 1)] == [RATE, RATE]


def test_a_broker_that_does_not_tell_its_traffic_is_named() -> None:
    with ExitStack() as stack:
        refusing = stack.enter_context(process("broker-0", delays_s=[], status=503))
        well = stack.enter_context(process("broker-1", delays_s=[]))
        traffic, (untold,) = measure_traffic(cluster_of(well, refusing, well))
    assert traffic.keys() == {(1, "t")}
    assert untold.startswith("Bytes in and out of broker 0 are not known")


def test_the_elections_of_a_late_controller_are_in_the_forecast() -> None:
    delays_s: list[float] = []
    with process("controller", delays_s=delays_s) as late:

        def elections() -> Any:
            delays_s[:] = [LATE_S]
            return forecast_recovery(cluster_of(late)).get("ownElections")

        assert wait_until(elections) == {"count": 5, "p50Ms": 100, "p99Ms": 100}
