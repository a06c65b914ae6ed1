"""What images/strip.py leaves of a library is enough for the object store."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import botocore
import pytest

from fairlead_release.project import ROOT

OTHERS = ("dynamodb", "sns")
"""Services of which nobody asks anything; the copy has some for speed."""
CALL = """
import json, botocore, botocore.session
session = botocore.session.Session()
made = []
for name in json.loads({names!r}):
    made.append(session.create_client(name, region_name="eu-central-1").meta.endpoint_url)
print(json.dumps([botocore.__file__, made]))
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """The library's data, of few services, in an environment to be stripped."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "activate").touch()
    (tmp_path / "bin" / "__pycache__").mkdir()
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    source = Path(botocore.__file__).parent
    data = source / "data"
    kept = {"s3", "signin", "sso", "sso-oidc", "sts", *OTHERS}

    def left_out(folder: str, names: list[str]) -> set[str]:
        if Path(folder) != data:
            return set()
        return {name for name in names if (data / name).is_dir() and name not in kept}

    shutil.copytree(source, packages / "botocore", ignore=left_out)
    return packages


def test_the_store_and_what_gives_credentials_are_left(packages: Path, tmp_path: Path) -> None:
    strip = [sys.executable, str(ROOT / "images" / "strip.py"), str(tmp_path)]
    subprocess.run(strip, check=True)
    data = packages / "botocore" / "data"
    left = {path.name for path in data.iterdir() if path.is_dir()}
    assert "s3" in left
    assert left.isdisjoint(OTHERS)
    assert not list((tmp_path / "bin").iterdir())
    command = [sys.executable, "-c", CALL.format(names=json.dumps(sorted(left)))]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    imported, endpoints = json.loads(done.stdout)
    assert Path(imported).is_relative_to(packages)
    assert "https://s3.eu-central-1.amazonaws.com" in endpoints
    assert "https://sts.eu-central-1.amazonaws.com" in endpoints
