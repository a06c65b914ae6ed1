"""The cost of tests: the processor time of each file, and of the processes that its tests awaited.

pytest prints durations, most of which is waiting if tests run in parallel. A run takes as long as
its processor time allows, so its end shows the files that use most of it. A process that a later
test waits for counts for that test.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_PROPERTY: Final = "cpu_s"
_FILES_SHOWN: Final = 12
_WORTH_SHOWING_S: Final = 60.0
"""A run that takes less does not need this list."""


def read_cpu_s() -> float:
    """Return the processor seconds of this process and of the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class CpuReport:
    """A plugin of pytest: workers measure, and the process that prints the summary adds up."""

    def __init__(self) -> None:
        self._before_s = 0.0
        self._started_s = time.monotonic()
        self.by_file: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logstart(self) -> None:
        """Note the processor time before the test's fixtures are set up."""
        self._before_s = read_cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Send a test's processor time with the report of its end."""
        report = yield
        if call.when == "teardown":
            report.user_properties.append((_PROPERTY, read_cpu_s() - self._before_s))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the reports of this process or of a worker."""
        path = report.nodeid.partition("::")[0]
        for name, value in report.user_properties:
            if name == _PROPERTY and isinstance(value, float):
                self.by_file[path] += value

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the files that used most."""
        total_s = sum(self.by_file.values())
        if total_s < _WORTH_SHOWING_S:
            return
        took_s = time.monotonic() - self._started_s
        terminalreporter.section("processor time")
        terminalreporter.line(f"{total_s:7.0f} s of {len(self.by_file)} files, in {took_s:.0f} s")
        by_use = sorted(self.by_file.items(), key=lambda each: -each[1])
        for path, used_s in by_use[:_FILES_SHOWN]:
            terminalreporter.line(f"{used_s:7.0f} s {path}")
