"""The `StreamJob` resource's spec: a PySpark job, run in a cluster or by `fairlead spark run`.

apiVersion: fairlead.io/v1alpha1
kind: StreamJob
metadata: {name: delays}
spec:
  clusterName: demo             # `fairlead spark run` does without
  application: {file: /opt/fairlead/jobs/delays.py}
  sources:
    - topics: [flights]
  checkpoint: {claim: {size: 1Gi}}
  executors: {instances: 2}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from fairlead_model.ids import TOPIC_NAME_LENGTH_MAX
from fairlead_model.resources.failover_drill import CLUSTER_NAME
from fairlead_model.resources.resource_reading import ManifestForm, RootRule, read_manifest
from fairlead_model.resources.resource_shape import Bound, Opaque, Quantity, Rule, Text, Whole

STREAM_JOB_KIND: Final = "StreamJob"
JOB_NAME_LENGTH_MAX: Final = 48
"""A Service has this name plus a suffix."""
DURATION_PATTERN: Final = r"[0-9]{1,9} ?(ms|milliseconds?|seconds?|minutes?|hours?|days?)"
_PATH: Final = Text(1024, 1)
_OPTION_VALUE: Final = Text(4096)
_MEMORY: Final = Text(
    maximum=16,
    minimum=2,
    pattern="[0-9]{1,9}(m|g)",
    hint="write Spark's memory sizes, such as 512m or 4g",
)

SaveMode: TypeAlias = Literal["append", "overwrite", "errorifexists", "ignore"]
OutputMode: TypeAlias = Literal["append", "update", "complete"]
JobLogin: TypeAlias = Literal["scram-sha-512", "tls"]
RestartType: TypeAlias = Literal["Never", "OnFailure", "OnInfrastructureFailure", "Always"]
_Options: TypeAlias = Mapping[str, Annotated[str, _OPTION_VALUE]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAuthentication:
    """As whom a job connects, by a Secret of its own namespace."""

    type: Annotated[
        JobLogin,
        "How the job authenticates; a listener of the LogCluster has to have the same "
        "authentication.type.",
    ]
    secret_name: Annotated[
        str,
        "Secret of the job's namespace, with the keys of a User's Secret: librdkafka.config, "
        "and the certificates that this names (ca.crt, user.crt, user.key). It is mounted into "
        "driver and executors. The owner of the namespace creates it: the operator does not "
        "copy Secrets.",
        Text(253, 1),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfigMap:
    """Where a ConfigMap keeps the program."""

    name: Annotated[str, "Name of a ConfigMap of the same namespace.", Text(253, 1)]
    key: Annotated[str, "Key of the ConfigMap that holds the program.", Text(253, 1)] = "job.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobApplication:
    """The program or query that runs: one of file, configMap and sql."""

    RULES: ClassVar = (
        Rule(
            cel="[has(self.file), has(self.configMap), has(self.sql)].filter(x, x).size() == 1",
            message="set exactly one of file, configMap and sql",
            holds=lambda it: (
                sum(part is not None for part in (it.file, it.config_map, it.sql)) == 1
            ),
        ),
        Rule(
            cel="!has(self.sql) || !has(self.arguments) || self.arguments.size() == 0",
            message="a query takes no arguments: write the values into it",
            field="arguments",
            holds=lambda it: it.sql is None or not it.arguments,
        ),
    )

    file: Annotated[
        str | None,
        "Path of a Python file: in the image, or on this machine for fairlead spark run.",
        _PATH,
    ] = None
    config_map: Annotated[JobConfigMap | None, "A Python file that a ConfigMap holds."] = None
    sql: Annotated[
        str | None,
        "One SELECT over the views of the sources; the job writes its result to the sink.",
        Text(65_536, 1),
    ] = None
    arguments: Annotated[
        tuple[Annotated[str, Text(4096)], ...], "Arguments of the program.", Bound(64)
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSource:
    """Topics that are read; their lag is shown."""

    RULES: ClassVar = (
        Rule(
            cel="self.topics.size() > 0",
            message="name at least one topic",
            field="topics",
            holds=lambda it: bool(it.topics),
        ),
    )

    topics: Annotated[
        tuple[Annotated[str, Text(TOPIC_NAME_LENGTH_MAX, 1)], ...], "Names of topics.", Bound(64)
    ]
    view: Annotated[
        str,
        "Name of the view that sql finds these topics under. Default: the name of the first topic.",
        Text(
            128,
            0,
            "([A-Za-z_][A-Za-z0-9_]*)?",
            "a view's name has letters, digits and '_' and does not begin with a digit",
        ),
    ] = ""
    schema: Annotated[
        str,
        "Fields of the JSON in the records' values, as Spark's DDL, such as 'carrier STRING, delay "
        "INT': the view has them as columns beside key, topic, partition, offset and timestamp. "
        "Without it the view has value, as text.",
        Text(65_536),
    ] = ""
    options: Annotated[
        _Options, "Options of the source, such as startingOffsets: earliest.", Bound(64)
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSink:
    """Where the result of sql goes: a topic, or any format that Spark writes."""

    RULES: ClassVar = (
        Rule(
            cel="has(self.topic) != has(self.format)",
            message="set exactly one of topic and format",
            holds=lambda it: (it.topic is None) != (it.format is None),
        ),
    )

    topic: Annotated[
        str | None,
        "Topic that takes the result: its columns key and value, or all of them as JSON.",
        Text(TOPIC_NAME_LENGTH_MAX, 1),
    ] = None
    format: Annotated[str | None, "A format of Spark, such as parquet or jdbc.", Text(128, 1)] = (
        None
    )
    options: Annotated[_Options, "Options of that format, such as path.", Bound(64)] = field(
        default_factory=dict
    )
    output_mode: Annotated[
        OutputMode, "What a stream writes when its result changes (Spark's output mode)."
    ] = "append"
    save_mode: Annotated[
        SaveMode,
        "How each batch is written if the format has no streaming sink, such as jdbc "
        "(Spark's save mode).",
    ] = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrigger:
    """When a stream takes its next batch; neither: as soon as the last one is done."""

    RULES: ClassVar = (
        Rule(
            cel="!(has(self.processingTime) && self.availableNow)",
            message="set processingTime or availableNow, not both",
            holds=lambda it: it.processing_time is None or not it.available_now,
        ),
    )

    processing_time: Annotated[
        str | None,
        "Time from one batch to the next, such as '10 seconds'.",
        Text(32, 1, DURATION_PATTERN, "write a time such as '10 seconds'"),
    ] = None
    available_now: Annotated[
        bool,
        "Read the records that are there now, in batches, and end. The next run goes on "
        "from there.",
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointClaim:
    """A volume for the checkpoint: one that is there, or one that is made."""

    RULES: ClassVar = (
        Rule(
            cel="has(self.name) != has(self.size)",
            message="set name for an existing claim, or size for a new one",
            holds=lambda it: (it.name is None) != (it.size is None),
        ),
    )

    name: Annotated[str | None, "A PersistentVolumeClaim of the same namespace.", Text(253, 1)] = (
        None
    )
    size: Annotated[str | None, "Size of a new claim, such as 1Gi.", Quantity()] = None
    storage_class_name: Annotated[
        str | None, "StorageClass of a new claim. Default: the default class.", Text(253, 1)
    ] = None
    shared: Annotated[
        bool,
        "The volume can be mounted on several nodes (ReadWriteMany), and executors mount it, "
        "too. Queries with state need this, or a uri.",
    ] = False
    retain: Annotated[bool, "When the job is deleted, keep the claim that the operator made."] = (
        False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCheckpoint:
    """Where the job remembers how far it is: one of claim, uri and ephemeral."""

    RULES: ClassVar = (
        Rule(
            cel="[has(self.claim), has(self.uri), self.ephemeral].filter(x, x).size() == 1",
            message="set exactly one of claim, uri and ephemeral",
            holds=lambda it: (it.claim is not None) + (it.uri is not None) + it.ephemeral == 1,
        ),
    )

    claim: Annotated[CheckpointClaim | None, "A PersistentVolumeClaim for the checkpoint."] = None
    uri: Annotated[
        str | None, "A folder in storage that every node reaches, such as s3a://bucket/job.", _PATH
    ] = None
    ephemeral: Annotated[
        bool,
        "Keep the checkpoint on the driver's own disk: a new driver starts without it. For "
        "jobs that may lose their progress.",
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverResources:
    """The driver: one pod."""

    cores: Annotated[int, "Threads for the driver's own work.", Whole(1, 64)] = 1
    memory: Annotated[str, "Heap of the JVM.", _MEMORY] = "1g"
    memory_overhead: Annotated[str, "Memory besides the heap: Python, buffers.", _MEMORY] = "512m"
    cpu_request: Annotated[str, "CPU that the pod requests.", Quantity()] = "500m"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicAllocation:
    """Executors that come and go with the work; for loads, not for streams."""

    RULES: ClassVar = (
        Rule(
            cel="self.minimum <= self.maximum",
            message="minimum must not be above maximum",
            holds=lambda it: it.minimum <= it.maximum,
        ),
    )

    minimum: Annotated[int, "Smallest number of executors.", Whole(0, 1_000)] = 0
    maximum: Annotated[int, "Largest number of executors.", Whole(1, 1_000)]
    idle_seconds: Annotated[int, "How long an executor without work stays.", Whole(1, 86_400)] = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorResources:
    """The executors: pods that do the work."""

    instances: Annotated[int, "Number of executors.", Whole(1, 1_000)] = 2
    cores: Annotated[int, "Tasks that an executor runs at once.", Whole(1, 64)] = 1
    memory: Annotated[str, "Heap of each JVM.", _MEMORY] = "1g"
    memory_overhead: Annotated[str, "Memory besides the heap: Python, buffers.", _MEMORY] = "512m"
    cpu_request: Annotated[str, "CPU that each pod requests.", Quantity()] = "500m"
    dynamic_allocation: Annotated[
        DynamicAllocation | None, "Let the number of executors follow the work."
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """What follows when the driver ends. The checkpoint is always kept."""

    type: Annotated[
        RestartType,
        "Never: do not start the driver again. OnFailure: start it again after a failure. "
        "OnInfrastructureFailure: only if the pod was lost or killed, not if the program "
        "failed. Always: also after success.",
    ] = "OnFailure"
    backoff_seconds: Annotated[
        int, "Wait before the first restart; it doubles with each restart.", Whole(1, 3_600)
    ] = 5
    backoff_maximum_seconds: Annotated[int, "Longest wait.", Whole(1, 86_400)] = 300
    retries: Annotated[
        int | None,
        "Restarts in a row before the job counts as failed. After a driver has run for ten "
        "minutes, the count begins at 0 again. Default: no limit.",
        Whole(0, 1_000_000),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPodTemplate:
    """What driver and executors have beyond what the operator gives them."""

    labels: Annotated[Mapping[str, Annotated[str, Text(63)]], "Labels of the pods.", Bound(32)] = (
        field(default_factory=dict)
    )
    annotations: Annotated[
        Mapping[str, Annotated[str, Text(4096)]], "Annotations of the pods.", Bound(32)
    ] = field(default_factory=dict)
    node_selector: Annotated[
        Mapping[str, Annotated[str, Text(63)]],
        "Labels that nodes of the pods must have.",
        Bound(32),
    ] = field(default_factory=dict)
    tolerations: Annotated[
        tuple[Annotated[Mapping[str, Any], Opaque(8)], ...], "Tolerations, as in a Pod.", Bound(32)
    ] = ()
    env: Annotated[
        tuple[Annotated[Mapping[str, Any], Opaque(4)], ...],
        "Environment variables of the containers, as in a Pod.",
        Bound(64),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNetworkPolicy:
    """Who may connect to driver and executors."""

    enabled: Annotated[
        bool,
        "Accept only connections from the job's own pods, and from the operator, which "
        "asks for the job's progress.",
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJobSpec:
    """A PySpark job over topics of a LogCluster."""

    RULES: ClassVar = (
        Rule(
            cel="!has(self.user) || !has(self.authentication)",
            message="set user or authentication, not both",
            field="authentication",
            holds=lambda it: it.user is None or it.authentication is None,
        ),
        Rule(
            cel="!has(self.clusterNamespace) || has(self.clusterName)",
            message="clusterNamespace needs clusterName: set clusterName, too",
            field="clusterName",
            holds=lambda it: it.cluster_namespace is None or it.cluster_name is not None,
        ),
        Rule(
            cel="has(self.application.sql) == has(self.sink)",
            message="sql needs a sink, and a program writes its results itself: set sink with sql "
            "only",
            field="sink",
            holds=lambda it: (it.application.sql is not None) == (it.sink is not None),
        ),
        Rule(
            cel="!has(self.application.sql) || (has(self.sources) && self.sources.size() > 0)",
            message="sql needs sources to read from",
            field="sources",
            holds=lambda it: it.application.sql is None or bool(it.sources),
        ),
        Rule(
            cel="!has(self.schedule) || self.restartPolicy.type != 'Always'",
            message=(
                "a job with a schedule ends between its runs: set OnFailure, "
                "OnInfrastructureFailure or Never"
            ),
            field="restartPolicy",
            holds=lambda it: it.schedule is None or it.restart_policy.type != "Always",
        ),
    )

    cluster_namespace: Annotated[
        str | None,
        "Namespace of that LogCluster, if it is not the job's own: its spec.spark.namespaces "
        "has to name the job's namespace.",
        Text(63, 1),
    ] = None
    cluster_name: Annotated[
        str | None,
        "LogCluster of the same namespace that the job reads, unless clusterNamespace is set. "
        "Default: the only LogCluster of the namespace.",
        CLUSTER_NAME,
    ] = None
    user: Annotated[
        str | None,
        "User of the same namespace and LogCluster with which the job connects; its Secret is "
        "mounted into driver and executors. A job in another namespace than its LogCluster "
        "sets authentication instead. Default, without either: the job does not authenticate, "
        "and connects to a listener of type Internal without tls and authentication.",
        Text(253, 1),
    ] = None
    authentication: Annotated[
        JobAuthentication | None,
        "Credentials with which the job connects, in a Secret of its own namespace instead of "
        "a User.",
    ] = None
    application: Annotated[JobApplication, "The program or query that runs."]
    sources: Annotated[
        tuple[JobSource, ...], "Topics that the job reads; the status shows their lag.", Bound(16)
    ] = ()
    sink: Annotated[JobSink | None, "Where the result of sql goes."] = None
    trigger: Annotated[JobTrigger, "When a stream takes its next batch."] = field(
        default_factory=JobTrigger
    )
    checkpoint: Annotated[JobCheckpoint, "Where the job keeps its progress."]
    group_id: Annotated[
        str | None,
        "Consumer group that shows the job's progress. Default: the job's name.",
        Text(249, 1),
    ] = None
    driver: Annotated[DriverResources, "The driver."] = field(default_factory=DriverResources)
    executors: Annotated[ExecutorResources, "The executors."] = field(
        default_factory=ExecutorResources
    )
    spark_conf: Annotated[
        _Options,
        "Settings of Spark. Settings that the operator uses itself are refused.",
        Bound(128),
    ] = field(default_factory=dict)
    image: Annotated[
        str | None,
        "Image of driver and executors. Default: the image that the operator was installed with.",
        Text(512, 1),
    ] = None
    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None,
        "When nodes pull the image. Default: that of Kubernetes.",
    ] = None
    image_pull_secrets: Annotated[
        tuple[Annotated[str, Text(253, 1)], ...],
        "Names of Secrets of this namespace that let nodes pull the image.",
        Bound(16),
    ] = ()
    service_account_name: Annotated[
        str | None,
        "ServiceAccount of the driver, which has to be allowed to create pods, Services and "
        "ConfigMaps in the namespace; the LogCluster's spec.spark.serviceAccounts has to list "
        "it. Default: CLUSTER-spark.",
        Text(253, 1),
    ] = None
    network_policy: Annotated[
        JobNetworkPolicy,
        "The NetworkPolicy of the job's pods; a change takes effect with the next run.",
    ] = field(default_factory=JobNetworkPolicy)
    template: Annotated[
        JobPodTemplate, "What the pods have in addition to what the operator gives them."
    ] = field(default_factory=JobPodTemplate)
    restart_policy: Annotated[RestartPolicy, "What the operator does when the driver ends."] = (
        field(default_factory=RestartPolicy)
    )
    schedule: Annotated[
        str | None,
        "When a load runs, in cron's five fields, UTC, such as '0 3 * * *'. A time that comes "
        "during a run is skipped.",
        Text(128, 9),
    ] = None
    suspend: Annotated[
        bool,
        "End the driver and keep the checkpoint. Once this is false, the job goes on from "
        "the checkpoint.",
    ] = False

    @classmethod
    def from_manifest(
        cls, manifest: Mapping[str, Any], *, is_local: bool = False
    ) -> "StreamJobSpec":
        """Read a job; ManifestError lists all errors."""
        form = ManifestForm(STREAM_JOB_KIND, cls, root_rules=ROOT_RULES, is_local=is_local)
        return read_manifest(manifest, form)

    @property
    def credentials_secret(self) -> str | None:
        """Name of the Secret for the job's login, if it has one. A User's Secret has its name."""
        return self.user if self.authentication is None else self.authentication.secret_name


ROOT_RULES: Final[tuple[RootRule[StreamJobSpec], ...]] = (
    RootRule(
        cel=f"self.metadata.name.size() <= {JOB_NAME_LENGTH_MAX}",
        message=f"a job's name has at most {JOB_NAME_LENGTH_MAX} characters, because a Service is "
        "named after it",
        field="metadata.name",
        holds=lambda name, _: len(name) <= JOB_NAME_LENGTH_MAX,
    ),
)
