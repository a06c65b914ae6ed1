"""What the runner knows between a pod that it made and the watch that tells of it."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from waiting import until

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import LOG_CLUSTER, POD, SECRET
from fairlead_kube.object_changes import ObjectChange
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.stream_jobs.job_status import JobStatus
from fairlead_operator.stream_jobs.metrics import StreamJobMetrics
from fairlead_operator.stream_jobs.names import job_labels
from fairlead_operator.stream_jobs.runner import HIDDEN_LOOK_S, StreamJobRunner

KEY = ("ns", "job")


class NotedClient:
    """Takes every write; `refusal` is what making a pod fails with.

    `secrets` is what is answered for Secrets, one after the other; what was asked for is noted.
    `there` are objects that exist before the job.
    """

    def __init__(
        self,
        job: dict[str, Any],
        refusal: ApiError | None = None,
        secrets: Sequence[Mapping[str, Any] | ApiError] = (),
        there: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._job = job
        self._there = {(each["kind"], each["metadata"]["name"]): each for each in there}
        self._refusal = refusal
        self._secrets = list(secrets)
        self.asked: list[tuple[str, str]] = []
        self.pods: list[dict[str, Any]] = []
        self.applied: list[str] = []
        self.deleted: list[str] = []

    find = KubeClient.find

    async def get(self, kind: Any, namespace: str, name: str) -> Mapping[str, Any]:
        if kind is not SECRET:
            if (kind.kind, name) in self._there:
                return self._there[kind.kind, name]
            raise ApiError(404, "NotFound", "not found")
        self.asked.append((namespace, name))
        answer = self._secrets.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def apply(self, kind: Any, *_: Any, **__: Any) -> None:
        self.applied.append(kind.kind)

    async def delete(self, kind: Any, *_: Any, **__: Any) -> None:
        self.deleted.append(kind.kind)

    async def create(self, kind: Any, _namespace: str, manifest: dict[str, Any]) -> None:
        if (kind.kind, manifest["metadata"]["name"]) in self._there:
            raise ApiError(409, "AlreadyExists", "already exists")
        if kind is POD and self._refusal is not None:
            raise self._refusal
        if kind is POD:
            self.pods.append(manifest)

    async def patch(self, *path: Any, **_: Any) -> dict[str, Any]:
        status = {**(self._job.get("status") or {}), **path[-1]["status"]}
        metadata = {**self._job["metadata"], "resourceVersion": "2"}
        return {"metadata": metadata, "status": {k: v for k, v in status.items() if v is not None}}


class NotedEvents:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    async def emit(self, _object: Any, reason: str, message: str, *_: Any, **__: Any) -> None:
        self.told.append((reason, message))


NO_SECRET = ApiError(404, "NotFound", "not found")
SCRAM_SHA_512 = {"authentication": {"type": "scram-sha-512"}}
SCRAM = {"name": "scram", "type": "Internal", "port": 9093, **SCRAM_SHA_512}
CONFIG = (
    b"security.protocol=sasl_plaintext\nsasl.mechanism=SCRAM-SHA-512\n"
    b"sasl.username=app\nsasl.password=p\n"
)
COPY = {"data": {"librdkafka.config": base64.b64encode(CONFIG).decode()}}
FROM_ELSEWHERE: dict[str, Any] = {
    "clusterName": "shared",
    "clusterNamespace": "data",
    "authentication": {"type": "scram-sha-512", "secretName": "copied"},
}


def clusters_of(asks_for_account: bool, listeners: Sequence[Mapping[str, Any]]) -> LiveObjects:
    """One cluster of the job's namespace, and one of another that lets it in."""
    live = LiveObjects(None, (), lambda _: None)  # type: ignore[arg-type]
    spark = {"driverAccount": asks_for_account}
    live.informers[LOG_CLUSTER]._objects.update(
        {
            ("ns", "logs"): {
                "metadata": {"name": "logs", "namespace": "ns"},
                "spec": {"spark": spark, "listeners": list(listeners)},
            },
            ("data", "shared"): {
                "metadata": {"name": "shared", "namespace": "data"},
                "spec": {"spark": {"namespaces": ["ns"]}, "listeners": list(listeners)},
            },
            ("data", "closed"): {"spec": {}},
        }
    )
    return live


def job_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": "job", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "StreamJob",
        "metadata": metadata | {"generation": 1, "creationTimestamp": "2026-11-01T00:00:00Z"},
        "spec": {"application": {"file": "/job.py"}, "checkpoint": {"ephemeral": True}, **spec},
    }


def runner_of(
    client: Any, events: Any, clusters: LiveObjects, *, driver_role: str = ""
) -> StreamJobRunner:
    return StreamJobRunner(
        client,
        events,
        clusters=clusters,
        operator_namespace="fairlead",
        default_image="image",
        driver_role=driver_role,
        metrics=StreamJobMetrics(CollectorRegistry()),
    )


def looks(
    count: int,
    *,
    refusal: ApiError | None = None,
    lost: bool = False,
    driver_role: str = "",
    asks_for_account: bool = True,
    listeners: Sequence[Mapping[str, Any]] = (),
    user: Mapping[str, Any] | None = None,
    connects_as: str = "",
    secrets: Sequence[Mapping[str, Any] | ApiError] = (),
    asked: list[tuple[str, str]] | None = None,
    **more: Any,
) -> tuple[Any, Any]:
    """The job and what was told of it after so many looks, no watch telling of the pod. `lost`:
    it tells that the pod was there and is gone, after the first. `asked` gets the Secrets that were
    read. `more`: of the spec."""
    job = job_of({"user": connects_as, **more} if connects_as else more)
    client, events = NotedClient(job, refusal, secrets), NotedEvents()

    async def attend() -> None:
        clusters = clusters_of(asks_for_account, listeners)
        runner = runner_of(client, events, clusters, driver_role=driver_role)
        runner._jobs._objects[KEY] = job
        if user is not None:
            runner._users._objects["ns", user["metadata"]["name"]] = dict(user)
        for number in range(count):
            await runner._attend(KEY)
            if lost and number == 0:
                (pod,) = client.pods
                runner._on_pod(ObjectChange(("ns", pod["metadata"]["name"]), pod, None))

    asyncio.run(attend())
    if asked is not None:
        asked.extend(client.asked)
    return job, events.told


def ready_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    (ready,) = (each for each in job["status"]["conditions"] if each["type"] == "Ready")
    found: Mapping[str, Any] = ready
    return found


def test_a_pod_that_was_made_is_there_before_the_watch_tells() -> None:
    job, told = looks(4)
    assert (job["status"]["run"], job["status"]["phase"]) == (1, "Starting")
    assert "endedRun" not in job["status"]
    assert [reason for reason, _ in told] == ["DriverStarted"]


def test_a_job_says_why_it_cannot_read_a_secured_cluster() -> None:
    tls = {"name": "tls", "type": "Internal", "port": 9093, "tls": {"enabled": True}}
    job, _ = looks(2, listeners=[tls])
    (ready,) = (each for each in job["status"]["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ClusterSecured")
    assert "LogCluster logs" in ready["message"]


def test_a_job_reads_a_secured_cluster_as_its_user() -> None:
    login = {"authentication": {"type": "tls"}}
    tls = {"name": "tls", "type": "Internal", "port": 9093, "tls": {}, **login}
    user = {
        "metadata": {"name": "app", "namespace": "ns"},
        "spec": {"clusterName": "logs", **login},
        "status": {"secret": "app"},
    }
    job, told = looks(2, listeners=[tls], user=user, connects_as="app")
    assert [reason for reason, _ in told] == ["DriverStarted"]
    job, told = looks(2, listeners=[tls], connects_as="app")
    (ready,) = (each for each in job["status"]["conditions"] if each["type"] == "Ready")
    assert (ready["reason"], told) == ("UserNotFound", [])
    assert ready["message"].startswith("spec.user: ")


def test_a_job_of_another_namespace_may_not_name_a_user_and_is_told_what_to_do() -> None:
    elsewhere: dict[str, Any] = {"clusterName": "shared", "clusterNamespace": "data"}
    job, told = looks(2, listeners=[SCRAM], connects_as="app", **elsewhere)
    assert (ready_of(job)["reason"], told) == ("UserNotFound", [])
    assert "Have the Secret app copied from data to ns" in ready_of(job)["message"]
    job, told = looks(2, listeners=[SCRAM], **elsewhere)
    assert (ready_of(job)["reason"], told) == ("ClusterSecured", [])
    assert "spec.authentication" in ready_of(job)["message"]


def test_a_job_waits_for_the_secret_of_its_own_namespace_and_starts_with_it() -> None:
    asked: list[tuple[str, str]] = []
    job, told = looks(1, listeners=[SCRAM], secrets=[NO_SECRET], asked=asked, **FROM_ELSEWHERE)
    assert (ready_of(job)["reason"], told) == ("SecretNotFound", [])
    assert "is not in the namespace ns" in ready_of(job)["message"]
    answers: list[Any] = [NO_SECRET, {"data": {}}, COPY]
    job, told = looks(5, listeners=[SCRAM], secrets=answers, asked=asked, **FROM_ELSEWHERE)
    # Three looks until it starts; none while the driver runs, whatever becomes of the Secret.
    assert asked == [("ns", "copied")] * 4
    assert [reason for reason, _ in told] == ["DriverStarted"]
    assert ready_of(job)["reason"] == "Starting"


def test_a_secret_that_the_operator_may_not_read_is_said() -> None:
    refusal = ApiError(403, "Forbidden", "secrets is forbidden")
    job, _ = looks(1, listeners=[SCRAM], secrets=[refusal], **FROM_ELSEWHERE)
    assert ready_of(job)["reason"] == "SecretNotReadable"
    assert "secrets is forbidden" in ready_of(job)["message"]


def test_no_secret_is_read_where_no_listener_takes_the_login() -> None:
    job, told = looks(2, **FROM_ELSEWHERE)
    assert (ready_of(job)["reason"], told) == ("NoListener", [])


def test_a_secret_serves_in_the_namespace_of_the_cluster_too() -> None:
    login = FROM_ELSEWHERE["authentication"]
    _, told = looks(2, listeners=[SCRAM], secrets=[COPY], clusterName="logs", authentication=login)
    assert [reason for reason, _ in told] == ["DriverStarted"]


def test_a_job_that_waits_for_its_user_is_looked_at_when_there_is_news_of_him() -> None:
    async def told() -> tuple[float, float]:
        runner = runner_of(None, None, clusters_of(True, ()))
        other = ("ns", "other")
        runner._jobs._objects.update({KEY: {"spec": {"user": "app"}}, other: {"spec": {}}})
        runner._look_at = {KEY: 1e9, other: 1e9}
        runner._on_user(ObjectChange(("ns", "app"), None, {"metadata": {"name": "app"}}))
        return runner._look_at[KEY], runner._look_at[other]

    assert asyncio.run(told()) == (0.0, 1e9)


def _log_cluster(name: str, generation: int, *, is_asleep: bool = False) -> dict[str, Any]:
    conditions = [{"type": "Hibernated", "status": "True", "reason": "Asleep"}]
    return {
        "kind": "LogCluster",
        "metadata": {"name": name, "namespace": "data", "generation": generation},
        "spec": {},
        "status": {"conditions": conditions if is_asleep else [], "brokersReady": generation},
    }


@pytest.mark.parametrize(
    ("spec", "is_meant"),
    [
        ({"clusterName": "late", "clusterNamespace": "data"}, True),
        ({"clusterName": "shared", "clusterNamespace": "data"}, False),
        ({"clusterName": "late"}, False),
    ],
)
@pytest.mark.parametrize(
    ("old", "is_news"),
    [
        (None, True),
        (_log_cluster("late", 1), True),
        (_log_cluster("late", 2, is_asleep=True), True),
        (_log_cluster("late", 2), False),
    ],
)
def test_a_job_that_waits_for_its_cluster_is_looked_at_when_there_is_news_of_that(
    spec: Mapping[str, Any], is_meant: bool, old: dict[str, Any] | None, is_news: bool
) -> None:
    async def told() -> float:
        live = clusters_of(True, ())
        runner = runner_of(None, None, live)
        runner._jobs._objects[KEY] = {"spec": spec}
        runner._look_at[KEY] = 1e9
        new = _log_cluster("late", 2)
        live._on_change(LOG_CLUSTER, ObjectChange(("data", "late"), old, new))
        return runner._look_at[KEY]

    assert asyncio.run(told()) == (0.0 if is_meant and is_news else 1e9)


def test_a_job_that_names_no_cluster_waits_for_any_of_its_namespace() -> None:
    """It begins at once when the only cluster of its namespace is made."""

    async def story() -> None:
        job = job_of({})
        live = clusters_of(True, ())
        made = live.informers[LOG_CLUSTER]._objects.pop(("ns", "logs"))
        for informer in live.informers.values():
            informer._synced.set()
        client = NotedClient(job)
        runner = runner_of(client, NotedEvents(), live)
        for each in (runner._jobs, runner._pods, runner._users):
            each._synced.set()
            each.run = asyncio.Event().wait  # type: ignore[method-assign, assignment]
        runner._jobs._objects[KEY] = job
        running = asyncio.create_task(runner.run())
        try:
            await until(lambda: job.get("status") and runner._look_at.get(KEY, 0.0) > 0.0)
            assert ready_of(job)["reason"] == "ClusterMissing"
            live.informers[LOG_CLUSTER]._objects["ns", "logs"] = made
            live._on_change(LOG_CLUSTER, ObjectChange(("ns", "logs"), None, made))
            await until(lambda: client.pods, deadline_s=30.0)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


def test_an_operator_that_takes_over_stops_no_driver_before_it_knows_the_clusters() -> None:
    job = job_of({})
    client, events = NotedClient(job), NotedEvents()

    async def take_over() -> None:
        before = runner_of(client, events, clusters_of(True, ()))
        before._jobs._objects[KEY] = job
        await before._attend(KEY)
        (driver,) = client.pods
        clusters = clusters_of(True, ())
        known = dict(clusters.informers[LOG_CLUSTER].objects)
        clusters.informers[LOG_CLUSTER]._objects.clear()
        after = runner_of(client, events, clusters)
        after._jobs._objects[KEY] = job
        name = driver["metadata"]["name"]
        after._pods._objects["ns", name] = driver | {"status": {"phase": "Running"}}
        for informer in (after._jobs, after._pods, after._users):
            informer._synced.set()
        working = asyncio.create_task(after.run())
        await asyncio.sleep(0.05)  # Time enough for a first look, were there one.
        assert KEY not in after._look_at
        clusters.informers[LOG_CLUSTER]._objects.update(known)
        for informer in clusters.informers.values():
            informer._synced.set()
        await until(lambda: KEY in after._look_at)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(take_over())
    assert [reason for reason, _ in events.told] == ["DriverStarted"]


@pytest.mark.parametrize("kind", ["pods", "clusters", "users"])
def test_what_may_not_be_read_is_not_taken_for_absent(kind: str) -> None:
    job = job_of({"user": "app"} if kind == "users" else {})
    client, events, clusters = NotedClient(job), NotedEvents(), clusters_of(True, ())

    async def look() -> None:
        runner = runner_of(client, events, clusters)
        runner._jobs._objects[KEY] = job
        users, pods = runner._users, runner._pods
        by_kind = {"pods": pods, "users": users, "clusters": clusters.informers[LOG_CLUSTER]}
        if kind == "clusters":
            clusters.informers[LOG_CLUSTER]._objects.clear()
        by_kind[kind]._parts[0].is_hidden = True
        await runner._attend(KEY)

    asyncio.run(look())
    assert not client.pods
    status = job.get("status") or {}
    assert "phase" not in status
    said = [each["reason"] for each in status.get("conditions", ())]
    assert said == [reason for reason, _ in events.told] == ["ClusterHidden"] * (kind == "clusters")


def test_a_pod_that_the_watch_told_of_and_that_is_gone_is_lost() -> None:
    job, told = looks(2, lost=True)
    assert job["status"]["endedRun"] == 1
    assert told[-1][0] == "DriverFailed"
    assert "the driver's pod is gone" in told[-1][1]


class UnansweringClient(NotedClient):
    """Makes pods, and loses its answer."""

    async def get(self, kind: Any, namespace: str, name: str) -> Mapping[str, Any]:
        if kind is POD and self.pods:
            return self.pods[-1]
        return await super().get(kind, namespace, name)

    async def create(self, kind: Any, namespace: str, manifest: dict[str, Any]) -> None:
        await super().create(kind, namespace, manifest)
        if kind is POD:
            raise ApiUnavailableError("no answer in time", may_have_landed=True)


def test_a_pod_whose_making_was_not_answered_is_not_lost_while_the_server_has_it() -> None:
    job = job_of({})
    client, events = UnansweringClient(job), NotedEvents()

    async def attend() -> None:
        runner = runner_of(client, events, clusters_of(True, ()))
        runner._jobs._objects[KEY] = job
        await runner._attend(KEY)
        assert len(client.pods) == 1
        await runner._attend(KEY)
        assert "endedRun" not in job["status"], "the watch is late, and the driver runs"
        client.pods.clear()
        await runner._attend(KEY)
        assert job["status"]["endedRun"] == 1, "now it is lost"

    asyncio.run(attend())
    assert [reason for reason, _ in events.told] == ["DriverFailed"]


def test_a_driver_that_has_ended_before_the_watch_tells_of_it_is_not_stopped_but_recorded() -> None:
    job = job_of({})
    client, events = UnansweringClient(job), NotedEvents()

    async def attend() -> None:
        runner = runner_of(client, events, clusters_of(True, ()))
        runner._jobs._objects[KEY] = job
        await runner._attend(KEY)
        await runner._attend(KEY)
        (pod,) = client.pods
        runner._pods._objects["ns", pod["metadata"]["name"]] = {
            **pod,
            "status": {"phase": "Running"},
        }
        pod["status"] = {"phase": "Succeeded"}
        job["spec"]["suspend"] = True
        await runner._attend(KEY)
        assert (job["status"]["endedRun"], job["status"]["outcome"]) == (1, "Succeeded")
        assert "stoppedRun" not in job["status"]
        await runner._attend(KEY)
        assert client.deleted == ["Pod"]
        assert "stoppedRun" not in job["status"]

    asyncio.run(attend())
    assert [reason for reason, _ in events.told] == ["Succeeded", "DriverStopped"]


def test_a_pod_that_cannot_be_made_is_not_called_lost() -> None:
    refusal = ApiError(403, "Forbidden", "exceeded quota: pods=10")
    job, told = looks(2, refusal=refusal)
    assert "exceeded quota" in job["status"]["lastError"]
    assert [reason for reason, _ in told] == ["DriverNotMade", "DriverFailed"]


NEVER: dict[str, Any] = {"restartPolicy": {"type": "Never"}}


def test_a_run_whose_pod_could_not_be_made_is_tried_again_whatever_follows_a_failure() -> None:
    """Never means that a program runs once, and it has not run."""
    job, told = looks(3, refusal=ApiError(403, "Forbidden", "exceeded quota: pods=10"), **NEVER)
    assert (job["status"]["phase"], told[-1][0]) == ("BackingOff", "DriverFailed")
    assert "tried again at" in told[-1][1]


@pytest.mark.parametrize(("looks_before", "phase"), [(1, "BackingOff"), (2, "Failed")])
def test_a_run_that_an_operator_did_not_get_to_make_is_tried_again_whatever_follows(
    looks_before: int, phase: str
) -> None:
    """It wrote down that it makes the pod, and died; or it saw the pod, which is gone."""
    job = job_of(NEVER)

    async def attend() -> None:
        for count in (looks_before, 2):
            runner = runner_of(NotedClient(job), NotedEvents(), clusters_of(True, ()))
            runner._jobs._objects[KEY] = job
            for _ in range(count):
                await runner._attend(KEY)

    asyncio.run(attend())
    assert (job["status"]["endedRun"], job["status"]["phase"]) == (1, phase)


def test_a_new_run_has_no_driver_before_one_was_seen() -> None:
    last = {"run": 1, "endedRun": 1, "driver": "job-driver.ns.svc:7078", "phase": "Stopping"}
    status = JobStatus(job_of({}) | {"status": last})
    status.start(2, "abc", datetime(2026, 11, 1, tzinfo=UTC))
    assert status.patch()["driver"] is None


NO_ACCOUNT = ApiError(
    403,
    "Forbidden",
    'pods "job-driver" is forbidden: error looking up service account ns/logs-spark: '
    'serviceaccount "logs-spark" not found',
)


def test_a_missing_account_is_said_with_the_commands_that_make_it() -> None:
    job, told = looks(2, refusal=NO_ACCOUNT)
    command = "kubectl create serviceaccount logs-spark -n ns && kubectl create role logs-spark"
    for text in (job["status"]["lastError"], *(message for _, message in told)):
        assert command in text
    assert [reason for reason, _ in told] == ["DriverNotMade", "DriverFailed"]
    assert job["status"]["retryAt"], "it is tried again, later and later"
    job, _ = looks(3, refusal=NO_ACCOUNT)
    ready = next(each for each in job["status"]["conditions"] if each["type"] == "Ready")
    assert (ready["reason"], command in ready["message"]) == ("BackingOff", True)


def test_an_account_that_the_operator_makes_is_waited_for() -> None:
    job, _ = looks(2, refusal=NO_ACCOUNT, driver_role="ClusterRole/drivers")
    assert "the operator makes it" in job["status"]["lastError"]
    assert "kubectl" not in job["status"]["lastError"]


def test_a_job_runs_as_no_account_that_its_cluster_does_not_list() -> None:
    job, told = looks(2, serviceAccountName="cluster-admin")
    (ready,) = (each for each in job["status"]["conditions"] if each["type"] == "Ready")
    assert ready["reason"] == "AccountNotAllowed"
    assert "its spec.spark.serviceAccounts has to name it" in ready["message"]
    assert told == []
    job, told = looks(2, serviceAccountName="logs-spark")
    assert [reason for reason, _ in told] == ["DriverStarted"]


def test_a_job_of_another_namespace_is_let_in_by_the_cluster() -> None:
    job, _ = looks(2, clusterName="closed", clusterNamespace="data", serviceAccountName="mine")
    (ready,) = (each for each in job["status"]["conditions"] if each["type"] == "Ready")
    assert ready["reason"] == "ClusterMissing"
    assert "its spec.spark.namespaces has to name it" in ready["message"]
    job, told = looks(2, clusterName="shared", clusterNamespace="data", serviceAccountName="mine")
    assert [reason for reason, _ in told] == ["DriverStarted"]


def object_of(kind: str, name: str, job: str = "") -> dict[str, Any]:
    """An object that exists: a job's, or nobody's."""
    labels = job_labels(job) if job else {"app": "somebody-else"}
    return {"kind": kind, "metadata": {"name": name, "namespace": "ns", "labels": labels}}


def attend_beside(there: Mapping[str, Any], **spec: Any) -> tuple[NotedClient, dict[str, Any]]:
    """Look at a job twice in a namespace where an object exists."""
    job = job_of(spec)
    client = NotedClient(job, there=[there])

    async def attend() -> None:
        runner = runner_of(client, NotedEvents(), clusters_of(True, ()))
        runner._jobs._objects[KEY] = job
        for _ in range(2):
            await runner._attend(KEY)

    asyncio.run(attend())
    return client, job


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Service", "job-driver"),
        ("ConfigMap", "job-driver"),
        ("NetworkPolicy", "job-spark"),
        ("Pod", "job-driver"),
    ],
)
def test_an_object_of_somebody_else_with_a_name_of_the_jobs_is_left_alone(
    kind: str, name: str
) -> None:
    policy = {"networkPolicy": {"enabled": True}}
    client, job = attend_beside(object_of(kind, name), **policy)
    assert kind not in client.applied
    assert not client.pods
    said = f"{kind} {name} was there before StreamJob job, which needs one of that name"
    assert said in job["status"]["lastError"]
    client, job = attend_beside(object_of(kind, name, "job"), **policy)
    assert kind == "Pod" or (kind in client.applied and client.pods)
    assert "lastError" not in job["status"]


def test_a_network_policy_is_taken_away_with_its_job_alone() -> None:
    for job, deleted in (("job", ["NetworkPolicy"]), ("", []), ("other", [])):
        policy = object_of("NetworkPolicy", "job-spark", job)
        client, _ = attend_beside(policy, networkPolicy={"enabled": False})
        assert client.deleted == deleted
        assert client.pods


def test_a_claim_for_the_checkpoint_may_be_there_before_its_job() -> None:
    claim = object_of("PersistentVolumeClaim", "job-checkpoint")
    client, _ = attend_beside(claim, checkpoint={"claim": {"size": "1Gi"}})
    assert client.pods


def test_a_job_says_that_its_cluster_may_not_be_seen_and_its_driver_goes_on() -> None:
    """It stood in the log alone, every two seconds."""
    job = job_of(FROM_ELSEWHERE)
    job["status"] = {"phase": "Running", "run": 1, "driver": "here"}
    client, events = NotedClient(job), NotedEvents()

    async def attend() -> list[float]:
        clusters = clusters_of(True, [SCRAM])
        del clusters.informers[LOG_CLUSTER]._objects["data", "shared"]
        clusters.informers[LOG_CLUSTER]._closed = frozenset({"data"})
        runner = runner_of(client, events, clusters)
        runner._jobs._objects[KEY] = job
        return [await runner._step(KEY, job) for _ in range(2)]

    assert asyncio.run(attend()) == [HIDDEN_LOOK_S] * 2
    status = job["status"]
    assert (status["phase"], status["run"], status["driver"]) == ("Running", 1, "here")
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "Unknown")
    assert condition["reason"] == "ClusterHidden"
    assert "logclusters of the namespace data may not be read" in condition["message"]
    assert [reason for reason, _ in events.told] == ["ClusterHidden"], "once"
    assert client.deleted == []
