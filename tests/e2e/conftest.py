"""One installation for the whole suite: operator chart and cluster chart, as a user installs them.

The tests of a module run in the order in which they are written and build on one another. What was
measured is printed as a table at the end.
"""

import os
from collections.abc import Iterator

import pytest
from kubernetes_installation import IMAGE, Installation, Summary

SUMMARY = Summary()


@pytest.fixture(scope="session")
def summary() -> Summary:
    return SUMMARY


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    """The first test makes it, from nothing. FAIRLEAD_E2E_KEEP leaves it there at the end, for
    another look, or for more of the tests without the first."""
    if not IMAGE:
        message = "no image: run `make e2e`"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    place = Installation()
    try:
        yield place
    finally:
        if not os.environ.get("FAIRLEAD_E2E_KEEP"):
            place.uninstall()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not SUMMARY.rows:
        return
    terminalreporter.section("end to end")
    width = max(len(what) for what, _, _ in SUMMARY.rows)
    for what, measured, promised in SUMMARY.rows:
        terminalreporter.line(f"{what:<{width}}  {measured:<38}  {promised}")
