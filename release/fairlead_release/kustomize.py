"""A kustomize base of the operator, out of what its chart renders. Pure."""

from collections.abc import Sequence
from typing import Final

import yaml

from fairlead_release.chart_packages import (
    NAMESPACE,
    Manifest,
    render_yaml,
    without_helm_in_pods,
)

MANAGED_BY: Final = "kustomize"
DEFINITION: Final = "CustomResourceDefinition"


def build_base(rendered: Sequence[Manifest]) -> dict[str, bytes]:
    """Return the files of the base by name; `rendered` is the chart with its default values.

    Each definition is a file of its own, so that an overlay can leave them to somebody else.
    """
    objects = [without_helm_in_pods(each, MANAGED_BY) for each in rendered]
    namespace: Manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE},
    }
    definitions = [each for each in objects if each["kind"] == DEFINITION]
    others = [each for each in objects if each["kind"] != DEFINITION]
    files = {
        f"crds/{definition['metadata']['name']}.yaml": render_yaml(definition)
        for definition in definitions
    }
    files["operator.yaml"] = render_yaml(namespace, *others)
    files["kustomization.yaml"] = yaml.safe_dump(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": sorted(files),
        },
        sort_keys=False,
    )
    return {name: text.encode() for name, text in files.items()}
