"""A real API server for tests: a client, an event loop for it, a namespace of the test's own.

Without a cluster these tests are skipped with the reason; where CI is set they fail instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest
import yaml
from fake_admin import FakeAdmin, FakeAdminServer
from operator_bench import Bench, Operator, SupervisedOperator, let_go
from patient_client import PatientClient
from waiting import until

from fairlead_bench.peers.own_ports import take_ports
from fairlead_kube.credentials import Credentials, load_credentials
from fairlead_kube.errors import ApiError, ApiUnavailableError, CredentialsError
from fairlead_kube.kinds import NAMESPACE, POD, SERVICE_ACCOUNT, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from fairlead_kube.client import KubeClient

T = TypeVar("T")

CRD: Final = ResourceKind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    is_namespaced=False,
)
CRD_FOLDER = Path(__file__).resolve().parents[2] / "crds"
ACCOUNT = "default"
"""The account of pods that name none; a controller makes it some time after the namespace."""


@pytest.fixture(scope="session")
def kube_credentials() -> Credentials:
    """Credentials of a cluster that answers and has our kinds."""
    try:
        credentials = load_credentials()
        asyncio.run(_ensure_kinds(credentials))
    except (CredentialsError, ApiError, ApiUnavailableError) as error:
        reason = f"no Kubernetes cluster: {error}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return credentials


@pytest.fixture
def run() -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
    """Run coroutines in the event loop that `kube` lives in."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def kube(
    kube_credentials: Credentials, run: Callable[[Coroutine[Any, Any, Any]], Any]
) -> Iterator[KubeClient]:
    """A client of the cluster, for coroutines that `run` runs."""

    async def make() -> KubeClient:
        return PatientClient(kube_credentials)

    client = run(make())
    yield client
    run(client.close())


@pytest.fixture
def namespace(kube: KubeClient, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[str]:
    """The name of a new namespace that takes pods, deleted at the end of the test."""
    name = f"fairlead-test-{secrets.token_hex(4)}"
    run(kube.create(NAMESPACE, None, {"metadata": {"name": name}}))
    run(until(lambda: kube.find(SERVICE_ACCOUNT, name, ACCOUNT), "the namespace has no account"))
    yield name
    with suppress(ApiError):
        run(kube.delete(NAMESPACE, None, name))


@pytest.fixture
def only_operator(kube: KubeClient, run: Any) -> None:
    """An installed operator that serves all namespaces would do this one's work, too."""
    selector = "app.kubernetes.io/name=fairlead,app.kubernetes.io/component=operator"
    pods = run(kube.list(POD, label_selector=selector)).items
    variables = [
        {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
        for pod in pods
    ]
    if all(known.get("FAIRLEAD_WATCH_NAMESPACE") for known in variables):
        return
    reason = (
        "an operator serves all namespaces of this cluster: uninstall it, or use another cluster"
    )
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def operator(
    only_operator: None, kube: KubeClient, run: Any, namespace: str, tmp_path: Path
) -> Iterator[Operator]:
    admin = FakeAdmin(clusters=[f"{namespace}/demo"])
    path, log = tmp_path / "controller.sock", tmp_path / "operator.log"
    (port,) = take_ports(1)
    environment = os.environ | {
        "POD_NAME": "fairlead-operator-0",
        "POD_NAMESPACE": "fairlead-system",
        "FAIRLEAD_WATCH_NAMESPACE": namespace,
        "FAIRLEAD_BROKER_IMAGE": "localhost/fairlead-not-there:test",
        "FAIRLEAD_SPARK_DRIVER_ROLE": "ClusterRole/drivers-of-spark",
        "FAIRLEAD_CONTROLLER_SOCKET": str(path),
        "FAIRLEAD_OPERATOR_HTTP_PORT": str(port),
    }
    with FakeAdminServer(admin, path):
        process = SupervisedOperator(environment, log)
        try:
            yield Operator(admin, port, log)
        finally:
            code = process.end(lambda: setattr(admin, "is_active", False))
            run(let_go(kube, namespace))
        assert code == 0, log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture
def bench(kube: KubeClient, namespace: str, operator: Operator) -> Bench:
    return Bench(kube, namespace, operator)


async def _ensure_kinds(credentials: Credentials) -> None:
    """Make the kinds in crds/ known to the cluster, those that it lacks."""
    client = PatientClient(credentials)
    try:
        known = {crd["metadata"]["name"] for crd in (await client.list(CRD)).items}
        for path in sorted(CRD_FOLDER.glob("*.yaml")):
            manifest = yaml.safe_load(path.read_text())
            name = manifest["metadata"]["name"]
            if name not in known:
                await client.apply(CRD, None, name, manifest, field_manager="fairlead-tests")
            await until(partial(_is_served, client, manifest["spec"]), f"{name} is not served")
    finally:
        await client.close()


async def _is_served(client: KubeClient, spec: dict[str, Any]) -> bool:
    """Whether the server answers for a kind, and kubectl would find it.

    Its condition Established comes first, and the list of all groups last.
    """
    names, group, version = spec["names"], spec["group"], spec["versions"][0]["name"]
    try:
        await client.check(ResourceKind(group, version, names["kind"], names["plural"]))
        kinds = json.loads(await client.read_text(f"/apis/{group}/{version}"))
        groups = json.loads(await client.read_text("/apis"))
    except (ApiError, ApiUnavailableError):
        return False
    has_kind = any(each["name"] == names["plural"] for each in kinds["resources"])
    return has_kind and any(each["name"] == group for each in groups["groups"])
