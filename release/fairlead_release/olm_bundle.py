"""A bundle for the Operator Lifecycle Manager, out of what the operator's chart renders. Pure.

A ClusterServiceVersion takes Deployments only, and brokers find each operator pod by a name of its
own (OperatorSettings.session_urls). So each replica of the chart's StatefulSet becomes a Deployment
of one pod, with the hostname and the subdomain that the StatefulSet would give to that pod.

Kinds that a bundle cannot have are left out: NetworkPolicy, FlowSchema and what it refers to.
Source: https://olm.operatorframework.io/docs/tasks/creating-operator-bundle.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import yaml

from fairlead_operator.resources.definitions import DEFINITIONS
from fairlead_release.chart_packages import Manifest, render_yaml, without_helm_in_pods

PACKAGE: Final = "fairlead"
CHANNEL: Final = "alpha"
INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
MANAGED_BY: Final = "olm"
CARRIED_KINDS: Final = ("ClusterRole", "PodDisruptionBudget", "PriorityClass", "Service")
"""What goes into the bundle as it is; roles that are bound to the operator do not."""
MATURITY: Final = "alpha"


def build_bundle(
    rendered: Sequence[Manifest], chart: Manifest, description: str
) -> dict[str, bytes]:
    """Return the files of the bundle by name.

    Args:
        rendered: the chart's objects, for all namespaces.
        chart: its Chart.yaml.
        description: a text in Markdown that a catalogue shows.
    """
    objects = [_without_namespace(without_helm_in_pods(each, MANAGED_BY)) for each in rendered]
    files = {
        f"manifests/{each['metadata']['name']}.crd.yaml": render_yaml(each)
        for each in objects
        if each["kind"] == "CustomResourceDefinition"
    }
    bound = {each["roleRef"]["name"] for each in objects if each["kind"].endswith("RoleBinding")}
    for each in objects:
        name, kind = each["metadata"]["name"], each["kind"]
        if kind in CARRIED_KINDS and not (kind == "ClusterRole" and name in bound):
            files[f"manifests/{name}.{kind.lower()}.yaml"] = render_yaml(each)
    version = build_service_version(objects, chart, description)
    files[f"manifests/{PACKAGE}.clusterserviceversion.yaml"] = render_yaml(version)
    labels = _labels()
    files["metadata/annotations.yaml"] = yaml.safe_dump({"annotations": labels}, sort_keys=False)
    files["bundle.Dockerfile"] = "".join(
        (
            "FROM scratch\n",
            *(f"LABEL {key}={value}\n" for key, value in labels.items()),
            "COPY manifests /manifests/\n",
            "COPY metadata /metadata/\n",
        )
    )
    return {name: text.encode() for name, text in files.items()}


def build_service_version(
    objects: Sequence[Manifest], chart: Manifest, description: str
) -> Manifest:
    """Return the ClusterServiceVersion."""
    (workload,) = [each for each in objects if each["kind"] == "StatefulSet"]
    account = workload["spec"]["template"]["spec"]["serviceAccountName"]
    version = chart["version"]
    image = workload["spec"]["template"]["spec"]["containers"][0]["image"]
    examples = [
        example
        for definition in DEFINITIONS
        if definition.example
        for example in yaml.safe_load_all(definition.example)
    ]
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{PACKAGE}.v{version}",
            "annotations": {
                "alm-examples": json.dumps(examples, indent=2),
                "capabilities": "Deep Insights",
                "categories": "Streaming & Messaging",
                "containerImage": image,
                "description": chart["description"],
            },
        },
        "spec": {
            "displayName": "Fairlead",
            "description": description,
            "version": version,
            "minKubeVersion": chart["kubeVersion"].removeprefix(">=").removesuffix("-0"),
            "maturity": MATURITY,
            "keywords": chart["keywords"],
            "provider": {"name": "Fairlead"},
            "maintainers": chart["maintainers"],
            "installModes": [
                {"type": mode, "supported": mode == "AllNamespaces"}
                for mode in (
                    "OwnNamespace",
                    "SingleNamespace",
                    "MultiNamespace",
                    "AllNamespaces",
                )
            ],
            "customresourcedefinitions": {
                "owned": [
                    {
                        "name": definition.crd_name,
                        "kind": definition.kind,
                        "version": "v1alpha1",
                        "displayName": definition.kind,
                        "description": definition.description,
                    }
                    for definition in DEFINITIONS
                ]
            },
            "relatedImages": [{"name": PACKAGE, "image": image}],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "permissions": _permissions(objects, "Role", account),
                    "clusterPermissions": _permissions(objects, "ClusterRole", account),
                    "deployments": list(_deployments(workload)),
                },
            },
        },
    }


def _permissions(objects: Iterable[Manifest], kind: str, account: str) -> list[dict[str, Any]]:
    """Return the rules of the roles of a kind that are bound to the operator's account."""
    named = {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}
    rules = [
        rule
        for binding in objects
        if binding["kind"] == f"{kind}Binding"
        for rule in named[binding["roleRef"]["name"]]["rules"]
    ]
    return [{"serviceAccountName": account, "rules": rules}]


def _deployments(workload: Manifest) -> Iterable[dict[str, Any]]:
    """Yield a Deployment for each pod of the StatefulSet."""
    name, spec = workload["metadata"]["name"], workload["spec"]
    for index in range(spec["replicas"]):
        own = {INDEX_LABEL: str(index)}
        template = spec["template"]
        labels = {**template["metadata"]["labels"], **own}
        pod_name = f"{name}-{index}"
        yield {
            "name": pod_name,
            "label": workload["metadata"]["labels"],
            "spec": {
                "replicas": 1,
                # Two pods with one host name at once would be two addresses of one name.
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": {**spec["selector"]["matchLabels"], **own}},
                "template": {
                    "metadata": {**template["metadata"], "labels": labels},
                    "spec": {
                        **template["spec"],
                        "hostname": pod_name,
                        "subdomain": spec["serviceName"],
                    },
                },
            },
        }


def _labels() -> dict[str, str]:
    prefix = "operators.operatorframework.io.bundle"
    return {
        f"{prefix}.mediatype.v1": "registry+v1",
        f"{prefix}.manifests.v1": "manifests/",
        f"{prefix}.metadata.v1": "metadata/",
        f"{prefix}.package.v1": PACKAGE,
        f"{prefix}.channels.v1": CHANNEL,
        f"{prefix}.channel.default.v1": CHANNEL,
    }


def _without_namespace(manifest: Manifest) -> Manifest:
    """Return an object that takes the namespace of whoever installs the bundle."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
    return {**manifest, "metadata": metadata}
