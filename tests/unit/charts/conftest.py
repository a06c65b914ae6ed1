"""Rendering charts with helm; skipped where helm is missing, a failure where CI is set."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from needed_tools import need

ROOT = Path(__file__).resolve().parents[3]
CHARTS = {"operator": ROOT / "charts" / "fairlead", "cluster": ROOT / "charts" / "fairlead-cluster"}
KUBERNETES = "1.34.0"

Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def helm() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run helm; the finished process, whatever its exit code."""
    need("helm")

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["helm", *(str(argument) for argument in arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    return run


@pytest.fixture(scope="session")
def render(helm: Helm) -> Callable[..., str]:
    """The manifests of a chart with some values; an AssertionError says what helm said."""

    def template(chart: str, *arguments: str | Path) -> str:
        release, namespace = ("fairlead", "fairlead") if chart == "operator" else ("events", "logs")
        done = helm(
            "template",
            release,
            CHARTS[chart],
            "-n",
            namespace,
            "--kube-version",
            KUBERNETES,
            *arguments,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return template
