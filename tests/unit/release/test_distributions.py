"""What the wheel and the sdist have in them, and that they do not depend on when they are made."""

import os
import re
import tomllib
import zipfile
from pathlib import Path

import yaml
from needed_tools import need

from fairlead_release.archives import read_archive, write_archive, write_sums
from fairlead_release.chart_packages import package_chart
from fairlead_release.distributions import build_distributions
from fairlead_release.project import CHARTS, FIRST_EPOCH, ROOT, read_version

VERSION = read_version()
SHARE = f"fairlead-{VERSION}.data/data/share/fairlead/"


def wheel_of(folder: Path) -> zipfile.ZipFile:
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def packages() -> list[Path]:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    targets = pyproject["tool"]["hatch"]["build"]["targets"]
    return [ROOT / name for name in targets["wheel"]["packages"]]


def test_every_package_of_the_product_is_in_the_wheel(distributions: Path) -> None:
    product = {
        init.parent
        for folder in ("broker", "operator", "cli", "spark")
        for init in (ROOT / folder).glob("*/__init__.py")
    }
    assert product - set(packages()) == {ROOT / "broker" / "codegen"}, "the generator stays here"
    expected = {
        str(path.relative_to(package.parent))
        for package in packages()
        for path in package.rglob("*.py")
    }
    found = {name for name in wheel_of(distributions).namelist() if name.endswith(".py")}
    assert found == expected


def test_what_helm_and_kubectl_read_is_in_the_wheel(distributions: Path) -> None:
    wheel = wheel_of(distributions)
    found = {name for name in wheel.namelist() if name.startswith(SHARE)}
    for folder in ("charts", "crds", "examples/hosts", "examples/kubernetes"):
        for path in (each for each in (ROOT / folder).rglob("*") if each.is_file()):
            name = SHARE + str(path.relative_to(ROOT))
            assert wheel.read(name) == path.read_bytes(), name
            found.discard(name)
    assert found == {f"{SHARE}examples/topics.yaml"}


def test_the_sdist_makes_the_same_wheel(distributions: Path, tmp_path: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    for name, content in read_archive(sdist).items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (source,) = (tmp_path / "source").iterdir()
    build_distributions(source, tmp_path / "again", FIRST_EPOCH)
    (first,), (second,) = distributions.glob("*.whl"), (tmp_path / "again").glob("*.whl")
    assert first.read_bytes() == second.read_bytes()


def test_nothing_in_them_names_a_machine_or_a_registry(distributions: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    place = re.compile(
        rb"(?<![\w.])/(?:work|root|home/\w+)/|(?:docker\.io|quay\.io|ghcr\.io|pypi\.org)"
    )
    for name, content in read_archive(sdist).items():
        found = place.search(content)
        assert not found, f"{name}: {found!r}"


def test_a_chart_package_has_the_same_bytes_whenever_it_is_made(tmp_path: Path) -> None:
    need("helm")
    for chart in CHARTS:
        packages = []
        for hour in (1, 2):
            copy = tmp_path / str(hour) / chart.name
            for path in (each for each in chart.rglob("*") if each.is_file()):
                target = copy / path.relative_to(chart)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
                os.utime(target, (3600 * hour, 3600 * hour))
            out = tmp_path / f"packages-{chart.name}-{hour}"
            out.mkdir()
            package_chart(copy, out, FIRST_EPOCH)
            (packed,) = out.iterdir()
            packages.append(packed.read_bytes())
        assert packages[0] == packages[1]
        files = read_archive(packed)
        assert f"{chart.name}/values.schema.json" in files


def test_an_archive_depends_on_its_files_alone(tmp_path: Path) -> None:
    for name, order in (("a", ("x", "y")), ("b", ("y", "x"))):
        write_archive(tmp_path / name, {each: each.encode() for each in order}, 7)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_archive(tmp_path / "a") == {"x": b"x", "y": b"y"}


def test_sums_are_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "empty").write_bytes(b"")
    write_sums(tmp_path)
    write_sums(tmp_path)
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert (tmp_path / "SHA256SUMS").read_text() == f"{empty}  deep/empty\n"


def test_one_version_everywhere() -> None:
    for chart in CHARTS:
        metadata = yaml.safe_load((chart / "Chart.yaml").read_text())
        assert (metadata["version"], metadata["appVersion"]) == (VERSION, VERSION), chart.name
    for dockerfile in ("images/Dockerfile", "images/spark/Dockerfile"):
        assert f"ARG VERSION={VERSION}\n" in (ROOT / dockerfile).read_text(), dockerfile
