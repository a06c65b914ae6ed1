"""`python -m fairlead_release`: builds everything that is released into `dist/`."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from fairlead_release.archives import write_sums
from fairlead_release.bill_of_materials import write_bills
from fairlead_release.chart_packages import package_chart, render_chart
from fairlead_release.commands import CommandError
from fairlead_release.distributions import build_distributions
from fairlead_release.installation import install_release
from fairlead_release.kustomize import build_base
from fairlead_release.olm_bundle import build_bundle
from fairlead_release.project import CHARTS, LOCKS, OPERATOR_CHART, ROOT, source_date_epoch
from fairlead_release.wheelhouse import collect_wheels


def build_release(dist: Path, image: str) -> None:
    """Build all of it into a folder, which is emptied first."""
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    epoch = source_date_epoch()
    build_distributions(ROOT, dist, epoch)
    (dist / "charts").mkdir()
    for chart in CHARTS:
        package_chart(chart, dist / "charts", epoch)
    write_manifests(dist, image)
    (dist / "requirements").mkdir()
    for lock in LOCKS.glob("*.txt"):
        shutil.copy(lock, dist / "requirements" / lock.name)
    collect_wheels(dist / "wheels")
    (dist / "sbom").mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        write_bills(dist / "sbom", install_release(dist, Path(scratch)))
    write_sums(dist)


def write_manifests(dist: Path, image: str = "") -> None:
    """Write the kustomize base and the bundle for OLM, both of the operator's chart."""
    rendered = render_chart(OPERATOR_CHART, *image_values(image))
    chart = yaml.safe_load((OPERATOR_CHART / "Chart.yaml").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    introduction = readme.split("\n\n")[1]
    for folder, files in (
        (dist / "kustomize", build_base(rendered)),
        (dist / "olm", build_bundle(rendered, chart, introduction)),
    ):
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def image_values(image: str) -> tuple[str, ...]:
    """Return the chart's values for an image, NAME:TAG or NAME@sha256:…; none for the default."""
    if not image:
        return ()
    name, at, digest = image.partition("@")
    if at:
        return (f"image.repository={name}", f"image.digest={digest}")
    name, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:
        raise CommandError(f"the image {image!r} has neither a tag nor a digest")
    return (f"image.repository={name}", f"image.tag={tag}")


def main() -> int:
    """Build a release; the exit code says whether it is whole."""
    parser = argparse.ArgumentParser(prog="fairlead_release", description=__doc__)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where to, emptied first")
    parser.add_argument(
        "--image", default="", help="image of the kustomize base and the bundle, by tag or digest"
    )
    options = parser.parse_args()
    try:
        build_release(options.dist, options.image)
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{options.dist}: {len((options.dist / 'SHA256SUMS').read_text().splitlines())} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
