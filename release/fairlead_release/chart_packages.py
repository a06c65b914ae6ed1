"""The charts, packaged and rendered by helm."""

import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from fairlead_release.archives import read_archive, write_archive
from fairlead_release.commands import run

Manifest = dict[str, Any]
NAMESPACE: Final = "fairlead"
KUBERNETES: Final = "1.34.0"
"""What the charts are rendered for: `kubeVersion` of each has to allow it; it chooses no field."""


def package_chart(chart: Path, folder: Path, epoch: int) -> None:
    """Write CHART-VERSION.tgz: helm checks and packs it, and the date of each file is ours."""
    with tempfile.TemporaryDirectory() as scratch:
        run(("helm", "lint", "--strict", "--quiet", chart))
        run(("helm", "package", chart, "--destination", scratch))
        (packed,) = Path(scratch).iterdir()
        write_archive(folder / packed.name, read_archive(packed), epoch)


def render_chart(chart: Path, *values: str, namespace: str = NAMESPACE) -> list[Manifest]:
    """Return the objects that a chart installs as the release `fairlead`, with text values."""
    flags = [part for value in values for part in ("--set-string", value)]
    command = ("helm", "template", "fairlead", chart, "-n", namespace)
    text = run((*command, "--kube-version", KUBERNETES, *flags))
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def without_helm(manifest: Manifest, managed_by: str) -> Manifest:
    """Return an object without what only helm reads in its metadata."""
    metadata = dict(manifest["metadata"])
    for field in ("labels", "annotations"):
        kept = {
            key: value
            for key, value in metadata.pop(field, {}).items()
            if not key.startswith("helm.sh/")
        }
        if "app.kubernetes.io/managed-by" in kept:
            kept["app.kubernetes.io/managed-by"] = managed_by
        if kept:
            metadata[field] = kept
    return {**manifest, "metadata": metadata}


def without_helm_in_pods(manifest: Manifest, managed_by: str) -> Manifest:
    """Return the same of a workload, and of its pods."""
    bare = without_helm(manifest, managed_by)
    if "template" not in bare.get("spec", {}):
        return bare
    template = without_helm(bare["spec"]["template"], managed_by)
    return {**bare, "spec": {**bare["spec"], "template": template}}


def render_yaml(*manifests: Manifest) -> str:
    """Return objects as one stream of YAML."""
    texts = [yaml.safe_dump(each, sort_keys=False, width=100) for each in manifests]
    return "---\n".join(texts)
