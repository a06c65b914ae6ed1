"""The distributions, built once; helm, where it is there."""

from pathlib import Path

import pytest
from needed_tools import need

from fairlead_release.chart_packages import Manifest, render_chart
from fairlead_release.distributions import build_distributions
from fairlead_release.project import FIRST_EPOCH, OPERATOR_CHART, ROOT


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("distributions")
    build_distributions(ROOT, folder, FIRST_EPOCH)
    return folder


@pytest.fixture(scope="session")
def rendered() -> list[Manifest]:
    """The objects of the operator's chart with its default values."""
    need("helm")
    return render_chart(OPERATOR_CHART)
