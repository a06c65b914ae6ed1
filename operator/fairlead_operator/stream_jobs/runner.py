"""Carries out jobs: observes, lets `decide_job_step` decide, acts, and observes again.

A status is written only with the version that was read, so that an operator that has been replaced
cannot undo its successor's writes. A running driver needs no operator.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError, HiddenError
from fairlead_kube.informer import Informer
from fairlead_kube.kinds import (
    CONFIG_MAP,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    STREAM_JOB,
    USER,
    ResourceKind,
)
from fairlead_kube.object_changes import ObjectChange, ObjectKey
from fairlead_model.resources.stream_job import StreamJobSpec
from fairlead_model.resources.topic_manifest import ManifestError
from fairlead_operator.conditions import is_asleep
from fairlead_operator.cut_fields import CutFields
from fairlead_operator.events import EventWriter
from fairlead_operator.ownership import is_same_owner
from fairlead_operator.refusals import OtherOwnerError
from fairlead_operator.schedule import ScheduleError
from fairlead_operator.specs.client_access import find_access
from fairlead_operator.specs.names import FIELD_MANAGER
from fairlead_operator.stream_jobs import manifests, steps
from fairlead_operator.stream_jobs.account_advice import DriverAccount, advise
from fairlead_operator.stream_jobs.driver import DriverPod, is_executor, read_driver
from fairlead_operator.stream_jobs.driver_client import DriverClient, DriverError
from fairlead_operator.stream_jobs.job_access import (
    JobAccess,
    elsewhere,
    find_open_access,
    find_secret_access,
    find_user_access,
)
from fairlead_operator.stream_jobs.job_secret import SecretSource, find_secret_obstacle
from fairlead_operator.stream_jobs.job_status import (
    CLUSTER_HIDDEN,
    FINAL,
    JobProgress,
    JobStatus,
)
from fairlead_operator.stream_jobs.kept_claims import KeptClaims
from fairlead_operator.stream_jobs.metrics import StreamJobMetrics
from fairlead_operator.stream_jobs.names import (
    JOB_LABEL,
    RPC_PORT,
    driver_name,
    network_policy_name,
)
from fairlead_operator.stream_jobs.network_policy import build_network_policy
from fairlead_operator.stream_jobs.spark_conf import own_setting_problems

Manifest = dict[str, Any]
ClusterKey = tuple[str, str]
"""Namespace and name of a LogCluster."""
_log = logging.getLogger(__name__)
WATCH_S: Final = 2.0
"""Time between two requests to a running driver."""
FIGURES_S: Final = 5.0
"""A status in which only figures have changed is written at most once in this time."""
ERROR_DELAY_S: Final = 2.0
UNEXPECTED_DELAY_S: Final = 30.0
HIDDEN_LOOK_S: Final = 10.0
"""Time between two checks of a job whose LogCluster may not be read."""
IDLE_S: Final = 60.0
AT_ONCE: Final = 0.0
"""A time for the next check that is always in the past."""
JOBS_AT_ONCE: Final = 16
UNSEEN_S: Final = 30.0
"""How long a created pod counts as existing before the watch reports it."""


class JobClusters(Protocol):
    """What jobs need of LogClusters; `LiveObjects` implements it."""

    def follow_clusters(self, follower: Callable[[ObjectChange], None]) -> None:
        """Have a function called with each change of a LogCluster."""
        ...

    async def synced(self) -> None:
        """Wait until all LogClusters have been listed."""
        ...

    def find_cluster(
        self, namespace: str, name: str | None, cluster_namespace: str | None
    ) -> ClusterKey:
        """Return the LogCluster that a job of a namespace reads; LookupError if it is missing."""
        ...

    def asks_for_driver_account(self, cluster: ClusterKey) -> bool:
        """Tell whether the operator is to create drivers' accounts in the cluster's namespace."""
        ...

    def cluster(self, cluster: ClusterKey) -> Manifest:
        """Return a LogCluster; empty if it does not exist."""
        ...

    def may_use_driver_account(self, namespace: str, cluster: ClusterKey, account: str) -> bool:
        """Tell whether drivers of a namespace may use one of its ServiceAccounts."""
        ...


class StreamJobRunner:
    """Carries out all jobs; made in a running loop, `run` until cancelled.

    Drivers get the role `driver_role` if a LogCluster has the operator create their account.
    """

    def __init__(
        self,
        client: KubeClient,
        events: EventWriter,
        *,
        clusters: JobClusters,
        operator_namespace: str,
        default_image: str,
        driver_role: str = "",
        namespaces: Collection[str] = (),
        metrics: StreamJobMetrics | None = None,
        drivers: DriverClient | None = None,
    ) -> None:
        self._client = client
        self._events = events
        self._clusters = clusters
        self._operator_namespace = operator_namespace
        self._image = default_image
        self._driver_role = driver_role
        self._metrics = metrics or StreamJobMetrics()
        self._drivers = drivers or DriverClient()
        self._claims = KeptClaims(client, events)
        self._cut = CutFields()
        self._changed = asyncio.Event()
        self._jobs = Informer(client, STREAM_JOB, namespaces=namespaces, on_change=self._on_job)
        self._pods = Informer(
            client, POD, namespaces=namespaces, label_selector=JOB_LABEL, on_change=self._on_pod
        )
        self._users = Informer(client, USER, namespaces=namespaces, on_change=self._on_user)
        clusters.follow_clusters(self._on_cluster)
        self._look_at: dict[ObjectKey, float] = {}
        """Monotonic time of the next check of each job."""
        self._figures_at: dict[ObjectKey, float] = {}
        self._made: dict[ObjectKey, tuple[DriverPod, float]] = {}
        """Drivers that the watch has not reported yet, and until when they count as existing."""
        self._not_made: dict[ObjectKey, str] = {}
        """Why the pod of a job's last run could not be created."""
        self._slots = asyncio.Semaphore(JOBS_AT_ONCE)

    async def run(self) -> None:
        """Carry out all jobs."""
        informers = (self._jobs, self._pods, self._users)
        following = [asyncio.create_task(each.run()) for each in informers]
        try:
            # A LogCluster that was not listed yet is not missing: no driver is stopped for that.
            for each in (*informers, self._clusters):
                await each.synced()
            while True:
                self._changed.clear()
                now = time.monotonic()
                due = [key for key in self._jobs.objects if self._look_at.get(key, AT_ONCE) <= now]
                await asyncio.gather(*(self._attend(key) for key in due))
                self._metrics.show(self._jobs.objects)
                await self._wait()
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)

    def _on_job(self, change: ObjectChange) -> None:
        if change.new is None:
            self._figures_at.pop(change.key, None)
            self._look_at.pop(change.key, None)
            self._made.pop(change.key, None)
            self._not_made.pop(change.key, None)
            self._claims.forget(change.key)
            self._cut.forget(change.key)
        else:
            self._look_at[change.key] = AT_ONCE
        self._changed.set()

    def _on_pod(self, change: ObjectChange) -> None:
        for pod in (change.old, change.new):
            if pod is not None:
                job = (pod["metadata"].get("labels") or {}).get(JOB_LABEL, "")
                self._look_at[change.key[0], job] = AT_ONCE
                if change.key[1] == driver_name(job):
                    self._made.pop((change.key[0], job), None)
        self._changed.set()

    def _on_user(self, change: ObjectChange) -> None:
        """Have the jobs checked that connect as a user."""
        namespace, user = change.key
        for key, job in self._jobs.objects.items():
            if key[0] == namespace and job["spec"].get("user") == user:
                self._look_at[key] = AT_ONCE
                self._changed.set()

    def _on_cluster(self, change: ObjectChange) -> None:
        """Have the jobs checked that mean a LogCluster, if they could start now, or have to end."""
        if change.old and change.new and not _differs_for_jobs(change.old, change.new):
            return
        namespace, cluster = change.key
        for key, job in self._jobs.objects.items():
            spec = job["spec"]
            where = spec.get("clusterNamespace") or key[0]
            if where == namespace and spec.get("clusterName") in {None, cluster}:
                self._look_at[key] = AT_ONCE
                self._changed.set()

    async def _wait(self) -> None:
        now = time.monotonic()
        times = (self._look_at.get(key, AT_ONCE) for key in self._jobs.objects)
        delay_s = min((at - now for at in times), default=IDLE_S)
        try:
            # Not wait_for: until Python 3.12 it can lose a cancellation.
            async with asyncio.timeout(min(max(delay_s, 0.0), IDLE_S)):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _attend(self, key: ObjectKey) -> None:
        """Take the next step of a job; return when to check it again."""
        job = self._jobs.objects.get(key)
        if job is None or "deletionTimestamp" in job["metadata"]:
            self._look_at[key] = time.monotonic() + IDLE_S
            return
        async with self._slots:
            self._look_at[key] = time.monotonic() + IDLE_S
            try:
                delay_s = await self._step(key, job)
            except (ApiError, ApiUnavailableError) as error:
                if not (isinstance(error, ApiError) and error.is_conflict):
                    _log.warning("job %s/%s: trying again: %s", *key, error)
                delay_s = ERROR_DELAY_S
            except Exception:
                # The error concerns only this job: the others go on.
                _log.exception("job %s/%s: trying again after an unexpected error", *key)
                delay_s = UNEXPECTED_DELAY_S
        if self._look_at.get(key) != AT_ONCE:
            self._look_at[key] = time.monotonic() + delay_s

    async def _step(self, key: ObjectKey, job: Manifest) -> float:
        """Take one step; return the seconds until the next check."""
        status, now = JobStatus(job), datetime.now(UTC)
        try:
            spec = StreamJobSpec.from_manifest(job)
            problems = own_setting_problems(spec)
            next_run_at = steps.find_next_run(job, spec, now)
        except ManifestError as error:
            problems = list(error.problems)
        except ScheduleError as error:
            problems = [str(error)]
        if problems:
            # A running driver is left alone: it was created from a spec that could be read.
            return await self._refuse(key, job, status, "; ".join(problems), now)
        await self._claims.look_after(key, job, spec.checkpoint.claim)
        try:
            view, obstacle = self._view(key, job, spec)
        except HiddenError as error:
            return await self._leave(key, job, status, error, now)
        fingerprint = manifests.job_hash(view)
        driver = self._driver(key, job)
        asleep = is_asleep(self._clusters.cluster((view.cluster_namespace, view.cluster)))
        if asleep and obstacle is None:
            message = f"LogCluster {view.cluster} sleeps: the job goes on once it is awake"
            obstacle = steps.CLUSTER_HIBERNATED, message
        sight = steps.JobSight(now, fingerprint, driver, obstacle, next_run_at, asleep)
        step = await self._decide(job, view, sight)
        match step:
            case steps.Hold(phase, reason, message, until):
                status.plan(next_run_at if phase == "Waiting" else None)
                status.hold(phase, reason, message, now)
                await self._write(key, job, status)
                if phase in FINAL:
                    await self._delete_executors(key)
                return IDLE_S if until is None else max((until - now).total_seconds(), 0.1)
            case steps.StartDriver(run):
                status.start(run, fingerprint, now)
                await self._write(key, job, status)
                await self._make_driver(key, job, view, run, fingerprint)
                message = f"driver {run} is started with {view.image}"
                await self._events.emit(job, "DriverStarted", message, action="Start")
                return WATCH_S
            case steps.StopDriver(run, reason, message):
                status.stop(run, reason, message, now)
                await self._write(key, job, status)
                await self._delete_pod(key[0], driver_name(key[1]))
                self._made.pop(key, None)
                await self._events.emit(job, "DriverStopped", message, action="Stop")
                return WATCH_S
            case steps.RecordEnd():
                return await self._record_end(key, job, view, step, is_seen=driver is not None)
            case steps.Watch():
                return await self._watch(key, job, status, driver, now)

    async def _decide(
        self, job: Manifest, view: manifests.JobView, sight: steps.JobSight
    ) -> steps.Step:
        """Return the next step, after reading what watches do not report, or report too late."""
        key, status = (view.namespace, view.name), job.get("status") or {}
        step = steps.decide_job_step(view.spec, status, sight)
        runs = sight.driver is not None and not sight.driver.has_ended
        if isinstance(step, steps.StopDriver) and runs:
            # A driver that has ended meanwhile was not stopped, and is not run again.
            found = await self._find_driver(key, job)
            sight = replace(sight, driver=found or sight.driver)
            step = steps.decide_job_step(view.spec, status, sight)
        if steps.leads_to_driver(step):
            # The Secret is read only now: a running driver is left alone whatever happens to it.
            obstacle = await self._secret_obstacle(view)
            sight = replace(sight, obstacle=obstacle, is_secret_awaited=obstacle is not None)
            step = steps.decide_job_step(view.spec, status, sight)
        return step

    async def _watch(
        self,
        key: ObjectKey,
        job: Manifest,
        status: JobStatus,
        driver: DriverPod | None,
        now: datetime,
    ) -> float:
        progress: JobProgress | None = None
        problem = "" if driver is None else driver.problem
        if driver is not None and driver.ip and driver.phase == "Running":
            try:
                progress = await self._drivers.progress(driver.ip)
            except DriverError as error:
                if status.phase == "Running":
                    # The driver answered a moment ago, and its pod is still well.
                    _log.debug("job %s/%s: %s", *key, error)
                    return WATCH_S
        status.run_on(
            progress,
            driver=f"{driver_name(key[1])}.{key[0]}.svc:{RPC_PORT}",
            executors=self._count_executors(key),
            problem=problem,
            now=now,
        )
        await self._write(key, job, status)
        return WATCH_S

    async def _refuse(
        self, key: ObjectKey, job: Manifest, status: JobStatus, message: str, now: datetime
    ) -> float:
        status.hold("Pending", "InvalidSpec", message, now)
        if await self._write(key, job, status):
            await self._events.emit(job, "InvalidSpec", message, "Warning")
        return IDLE_S

    async def _leave(
        self, key: ObjectKey, job: Manifest, status: JobStatus, error: HiddenError, now: datetime
    ) -> float:
        """Report that nothing is done for a job; its driver goes on if it runs."""
        message = f"{error}: changes of the job wait until they may, and a driver that runs goes on"
        status.hide(message, now)
        if await self._write(key, job, status):
            await self._events.emit(job, CLUSTER_HIDDEN, message, "Warning")
        return HIDDEN_LOOK_S

    async def _record_end(
        self,
        key: ObjectKey,
        job: Manifest,
        view: manifests.JobView,
        step: steps.RecordEnd,
        *,
        is_seen: bool,
    ) -> float:
        if not is_seen and await self._is_unseen(key, job, step.run):
            return WATCH_S
        if not is_seen and key in self._not_made:
            step = replace(step, message=self._not_made[key], has_run=False)
        step = replace(step, message=advise(step.message, self._account(view)))
        status = JobStatus(job)
        status.end(step, view.spec.restart_policy, datetime.now(UTC))
        await self._write(key, job, status)
        await self._tell_end(job, step, status)
        return 0.0

    async def _tell_end(self, job: Manifest, step: steps.RecordEnd, status: JobStatus) -> None:
        self._metrics.ended(step.outcome)
        if step.outcome == "Succeeded":
            await self._events.emit(job, "Succeeded", step.message)
            return
        retry_at = status.values.get("retryAt")
        following = f"; tried again at {retry_at}" if retry_at else "; not tried again"
        await self._events.emit(job, "DriverFailed", step.message + following, "Warning")

    async def _make_driver(
        self, key: ObjectKey, job: Manifest, view: manifests.JobView, run: int, fingerprint: str
    ) -> None:
        """Create a run's driver, and remember it until the watch reports it."""
        self._not_made.pop(key, None)
        try:
            await self._make(view, run, fingerprint)
        except ApiError as error:
            problem = f"the driver's pod could not be made: {error}"
            self._not_made[key] = advise(problem, self._account(view))
            await self._events.emit(job, "DriverNotMade", self._not_made[key], "Warning")
            raise
        made = DriverPod(run=run, job_hash=fingerprint, phase="Pending")
        self._made[key] = made, time.monotonic() + UNSEEN_S

    def _account(self, view: manifests.JobView) -> DriverAccount:
        return DriverAccount(
            name=view.account,
            namespace=view.namespace,
            cluster=view.cluster,
            is_default=view.spec.service_account_name is None,
            is_asked_for=view.namespace == view.cluster_namespace
            and self._clusters.asks_for_driver_account((view.cluster_namespace, view.cluster)),
            role=self._driver_role,
        )

    async def _make(self, view: manifests.JobView, run: int, fingerprint: str) -> None:
        """Create what a run needs, the pod last; change what the last run has left."""
        children = [
            (SERVICE, manifests.build_service(view)),
            (CONFIG_MAP, manifests.build_config_map(view, run=run)),
        ]
        if view.spec.network_policy.enabled:
            policy = build_network_policy(view, self._operator_namespace)
            children.append((NETWORK_POLICY, policy))
        else:
            await self._remove_network_policy(view)
        for kind, manifest in children:
            name = manifest["metadata"]["name"]
            there = await self._client.find(kind, view.namespace, name)
            if there is not None:
                _require_ours(kind, there, manifest)
            await self._client.apply(
                kind, view.namespace, name, manifest, field_manager=FIELD_MANAGER
            )
        claim = manifests.build_claim(view)
        if claim is not None:
            await self._create(PERSISTENT_VOLUME_CLAIM, view.namespace, claim)
        pod = manifests.build_driver_pod(view, run=run, fingerprint=fingerprint)
        await self._create(POD, view.namespace, pod)

    async def _create(self, kind: Any, namespace: str, manifest: Manifest) -> None:
        try:
            await self._client.create(kind, namespace, manifest)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            there = await self._client.find(kind, namespace, manifest["metadata"]["name"])
            # Somebody may have restored a claim of this name from a copy, on purpose.
            if there is not None and kind is not PERSISTENT_VOLUME_CLAIM:
                _require_ours(kind, there, manifest)

    async def _remove_network_policy(self, view: manifests.JobView) -> None:
        """Delete the policy that an earlier form of the job has left, and no other owner's."""
        name = network_policy_name(view.name)
        there = await self._client.find(NETWORK_POLICY, view.namespace, name)
        ours = manifests.build_object(view, NETWORK_POLICY, name)
        if there is not None and is_same_owner(there, ours, JOB_LABEL):
            await self._delete(NETWORK_POLICY, view.namespace, name)

    async def _delete_executors(self, key: ObjectKey) -> None:
        """Delete the executors of a finished job.

        Their driver's pod stays for its log, so Kubernetes would not delete them.
        """
        for (namespace, name), pod in list(self._pods.objects.items()):
            if namespace == key[0] and _job_of(pod) == key[1] and is_executor(pod):
                await self._delete_pod(namespace, name)

    async def _delete_pod(self, namespace: str, name: str) -> None:
        await self._delete(POD, namespace, name)

    async def _delete(self, kind: ResourceKind, namespace: str, name: str) -> None:
        try:
            await self._client.delete(kind, namespace, name)
        except ApiError as error:
            if not error.is_not_found:
                raise

    def _driver(self, key: ObjectKey, job: Manifest) -> DriverPod | None:
        pod = self._pods.objects.get((key[0], driver_name(key[1])))
        if pod is None:
            _require_shown(self._pods, key[0], POD)
            made, until = self._made.get(key, (None, 0.0))
            return made if time.monotonic() < until else None
        driver = read_driver(pod)
        # The pod belongs to a deleted job of the same name, so it is no run of this job.
        return driver if manifests.owns(job, pod) else replace(driver, run=-1)

    async def _is_unseen(self, key: ObjectKey, job: Manifest, run: int) -> bool:
        """Tell whether the server has a run's pod that the watch has not reported.

        That happens if the answer to its creation was lost while the watch is broken.
        """
        driver = await self._find_driver(key, job)
        return driver is not None and driver.run == run

    async def _find_driver(self, key: ObjectKey, job: Manifest) -> DriverPod | None:
        """Read a job's driver from the server."""
        pod = await self._client.find(POD, key[0], driver_name(key[1]))
        return read_driver(pod) if pod is not None and manifests.owns(job, pod) else None

    def _count_executors(self, key: ObjectKey) -> int:
        return sum(
            namespace == key[0]
            and _job_of(pod) == key[1]
            and is_executor(pod)
            and (pod.get("status") or {}).get("phase") == "Running"
            for (namespace, _), pod in self._pods.objects.items()
        )

    def _view(
        self, key: ObjectKey, job: Manifest, spec: StreamJobSpec
    ) -> tuple[manifests.JobView, steps.Obstacle | None]:
        """Return the job with its defaults filled in, and why it cannot start, if so."""
        cluster, image, access = (key[0], ""), spec.image or self._image, JobAccess("")
        try:
            cluster = self._clusters.find_cluster(key[0], spec.cluster_name, spec.cluster_namespace)
            access = self._access(key[0], cluster, spec)
        except LookupError as error:
            access = JobAccess("", ("ClusterMissing", str(error)))
        obstacle = access.obstacle
        if not image:
            message = "set spec.image, or spark.image of the operator's chart"
            obstacle = "ImageMissing", message
        uid = str(job["metadata"]["uid"])
        view = manifests.JobView(key[1], key[0], uid, spec, *cluster, image, access.bootstrap)
        is_allowed = self._clusters.may_use_driver_account(key[0], cluster, view.account)
        if obstacle is None and not is_allowed:
            message = (
                f"spec.serviceAccountName: LogCluster {view.cluster} lets no job run as "
                f"{view.account!r}: its spec.spark.serviceAccounts has to name it"
            )
            obstacle = "AccountNotAllowed", message
        return view, obstacle

    def _access(self, namespace: str, cluster: ClusterKey, spec: StreamJobSpec) -> JobAccess:
        """Return where a job of a namespace connects to its LogCluster, with or without a user."""
        manifest, user = self._clusters.cluster(cluster), spec.user
        is_elsewhere = namespace != cluster[0]
        if spec.authentication is not None:
            return find_secret_access(cluster[1], manifest, spec.authentication.type)
        if user is None:
            return find_open_access(cluster[1], cluster[0], manifest, is_elsewhere=is_elsewhere)
        if is_elsewhere:
            return elsewhere(namespace, cluster[0], user)
        found = self._users.objects.get((namespace, user))
        if found is None:
            _require_shown(self._users, namespace, USER)
        return find_user_access(cluster[1], manifest, user, found)

    async def _secret_obstacle(self, view: manifests.JobView) -> steps.Obstacle | None:
        """Return why a job cannot log in with the Secret that it names, if it names one."""
        authentication = view.spec.authentication
        if authentication is None:
            return None
        cluster = self._clusters.cluster((view.cluster_namespace, view.cluster))
        access = find_access(cluster, authentication.type)
        if access is None:
            return find_secret_access(view.cluster, cluster, authentication.type).obstacle
        source = SecretSource(view.namespace, authentication.secret_name)
        try:
            held = await self._client.get(SECRET, source.namespace, source.name)
        except ApiError as error:
            if error.is_not_found:
                return source.missing()
            if error.is_forbidden:
                return source.forbidden(error.message)
            raise
        return find_secret_obstacle(source, authentication.type, access, held)

    async def _write(self, key: ObjectKey, job: Manifest, status: JobStatus) -> bool:
        """Write what differs; tell whether anything was written."""
        metadata = job["metadata"]
        known = job.get("status") or {}
        patch = self._cut.without_cut(key, metadata["uid"], status.patch(), known)
        if not patch:
            return False
        now = time.monotonic()
        is_fresh = now - self._figures_at.get(key, 0.0) < FIGURES_S
        if is_fresh and status.is_only_figures(patch):
            return False
        self._figures_at[key] = now
        body = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": patch,
        }
        written = await self._client.patch(STREAM_JOB, key[0], key[1], body, subresource="status")
        # The informer reports it later; until then the next step builds on this.
        metadata["resourceVersion"] = written["metadata"]["resourceVersion"]
        job["status"] = written.get("status") or {}
        if key in self._jobs.objects:
            self._cut.note(key, metadata["uid"], patch, job["status"])
        self._metrics.writes.inc()
        return True


def _differs_for_jobs(old: Manifest, new: Manifest) -> bool:
    """Tell whether a LogCluster has become another one for its jobs: by its spec, or awake."""
    fields = ("uid", "generation")
    before, after = old["metadata"], new["metadata"]
    is_other = any(before.get(field) != after.get(field) for field in fields)
    return is_other or is_asleep(old) != is_asleep(new)


def _require_shown(informer: Informer, namespace: str, kind: ResourceKind) -> None:
    """Raise ApiUnavailableError if objects may not be read, so that none counts as absent."""
    if informer.is_hidden(namespace):
        message = f"{kind.plural} of the namespace {namespace} may not be read"
        raise ApiUnavailableError(message, may_have_landed=False)


def _require_ours(kind: ResourceKind, there: Manifest, wanted: Manifest) -> None:
    """Raise OtherOwnerError if an object of the wanted name does not belong to the job."""
    if not is_same_owner(there, wanted, JOB_LABEL):
        metadata = wanted["metadata"]
        owner = f"StreamJob {metadata['labels'][JOB_LABEL]}"
        raise OtherOwnerError(kind.kind, metadata["name"], owner)


def _job_of(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(JOB_LABEL, ""))
