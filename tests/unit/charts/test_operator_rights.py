"""The operator's rights on Kubernetes are what its code does there: nothing is missing or over.

What the code does is read off its sources: calls of the client and of the writer with the kind that
each names. Where the kind is a variable, the kinds that come there are named below.
`get` goes with `list`: whoever may list objects may see each.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from fairlead_kube import kinds
from fairlead_kube.kinds import (
    BROKER_POOL,
    CLUSTER_STATE,
    CONFIG_MAP,
    LOG_CLUSTER,
    NETWORK_POLICY,
    PARTITION_TABLE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    ResourceKind,
)
from fairlead_operator.clusters.plan import PRUNED_KINDS
from fairlead_operator.live_objects import CHILD_KINDS, LiveObjects

OPERATOR = Path(__file__).resolve().parents[3] / "operator"
SOURCES = [
    *(OPERATOR / "fairlead_operator").rglob("*.py"),
    *(OPERATOR / "fairlead_controller" / "kubernetes").rglob("*.py"),
    *(OPERATOR / "fairlead_controller" / "stores").glob("kubernetes*.py"),
]
VERBS = {
    "create": {"create"},
    "apply": {"create", "patch"},  # a server-side apply may make the object
    "replace": {"update"},
    "replace_spec": {"patch"},
    "patch": {"patch"},
    "delete": {"delete"},
    "list": {"list"},
    "check": {"list"},
    "write_status": {"patch"},
    "Informer": {"list", "watch"},
}
PASSED_ON = {"clusters/api_writer.py"}
"""Where a variable is the kind that the caller names."""
TABLES = (CLUSTER_STATE, PARTITION_TABLE, SECRET)
WATCHED = tuple(LiveObjects(None, (), lambda _: None).informers)  # type: ignore[arg-type]
KINDS_OF_VARIABLES = {
    ("live_objects.py", "Informer", "kind"): WATCHED,
    ("tls/certificate_keeper.py", "apply", "child"): (SECRET,),
    ("clusters/reconciler.py", "apply", "child"): CHILD_KINDS,
    ("clusters/reconciler.py", "delete", "child.kind"): PRUNED_KINDS,
    ("clusters/status_writer.py", "write_status", "kind"): (LOG_CLUSTER, BROKER_POOL),
    ("clusters/driver_accounts.py", "create", "kind"): (SERVICE_ACCOUNT, ROLE_BINDING),
    ("clusters/driver_accounts.py", "delete", "kind"): (SERVICE_ACCOUNT, ROLE_BINDING),
    ("stream_jobs/runner.py", "apply", "kind"): (SERVICE, CONFIG_MAP, NETWORK_POLICY),
    ("stream_jobs/runner.py", "create", "kind"): (PERSISTENT_VOLUME_CLAIM, POD),
    ("stream_jobs/runner.py", "delete", "kind"): (NETWORK_POLICY, POD),
    ("stores/kubernetes.py", "create", "kind"): TABLES,
    ("stores/kubernetes.py", "replace", "kind"): TABLES,
    ("stores/kubernetes.py", "list", "kind"): TABLES,
    ("stores/kubernetes.py", "delete", "kind"): TABLES,
}
KOPF = {
    *((kind.group, kind.plural, verb) for kind in (LOG_CLUSTER, BROKER_POOL)
      for verb in ("list", "watch", "patch")),
    ("", "events", "create"),
}  # fmt: skip
"""It follows two kinds, keeps its notes in their annotations, and reports in Events."""
OWNERS = {
    ("fairlead.io", f"{plural}/finalizers", "update")
    for plural in ("brokerpools", "failoverdrills", "logclusters", "streamjobs", "topics", "users")
}
"""Asked for by the admission of ownerReferences that block a deletion; no code calls it."""
BY_NAME = {("rbac.authorization.k8s.io", "clusterroles", "bind")}
"""What a RoleBinding for Spark drivers is checked against."""

Right = tuple[str, str, str]


def used() -> Iterator[Right]:
    """API group, resource and verb of every call; KeyError for a variable that is not named."""
    for path in SOURCES:
        place = str(path.relative_to(path.parents[1]))
        short = place.removeprefix("fairlead_operator/")
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            verb, argument = _read_call(call)
            if verb not in VERBS or argument is None:
                continue
            subresource = next((each for each in call.keywords if each.arg == "subresource"), None)
            named = getattr(kinds, argument, None)
            if named is None and short in PASSED_ON:
                continue
            found = (named,) if named else KINDS_OF_VARIABLES[short, verb, argument]
            suffix = "/status" if subresource is not None or verb == "write_status" else ""
            for kind in found:
                assert isinstance(kind, ResourceKind)
                for right in VERBS[verb]:
                    yield kind.group, f"{kind.plural}{suffix}", right


def _read_call(call: ast.Call) -> tuple[str, str | None]:
    function = call.func
    if isinstance(function, ast.Name) and function.id == "Informer":
        return "Informer", ast.unparse(call.args[1])
    if not isinstance(function, ast.Attribute) or not call.args:
        return "", None
    receiver = ast.unparse(function.value)
    is_ours = receiver in {"client", "self._client", "self._writer"}
    return (function.attr, ast.unparse(call.args[0])) if is_ours else ("", None)


def granted(rendered: str) -> set[Right]:
    manifests = [each for each in yaml.safe_load_all(rendered) if each]
    bound = {each["roleRef"]["name"] for each in manifests if each["kind"].endswith("Binding")}
    return {
        (group, resource, verb)
        for each in manifests
        if each["kind"] in ("Role", "ClusterRole") and each["metadata"]["name"] in bound
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_operator_may_do_what_its_code_does_and_nothing_else(
    render: Callable[..., str],
) -> None:
    needed = {*used(), *KOPF, *OWNERS, *BY_NAME}
    rights = granted(render("operator"))
    beyond_get = {right for right in rights if right[2] != "get"}
    assert needed - rights == set(), "the code would be refused"
    assert beyond_get - needed == set(), "no code does this"
