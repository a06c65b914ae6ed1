"""StreamJob: its status and columns; the spec is `fairlead_model.resources.stream_job`."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from fairlead_model.resources.resource_shape import Bound, Text, Whole
from fairlead_model.resources.stream_job import ROOT_RULES, STREAM_JOB_KIND, StreamJobSpec
from fairlead_operator.resources.condition import COUNT, Conditions, ObservedGeneration
from fairlead_operator.resources.definition import AGE, READY, Column, ResourceDefinition

JobPhase: TypeAlias = Literal[
    "Pending",
    "Starting",
    "Running",
    "Stopping",
    "Suspended",
    "Waiting",
    "BackingOff",
    "Succeeded",
    "Failed",
]
QUERIES_MAX: Final = 16
ERROR_LENGTH_MAX: Final = 1024
_TIME: Final = Text(64, format="date-time")
_BATCH: Final = Whole(-1, 2**53)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """One streaming query of the job."""

    id: Annotated[str, "Spark's id of the query: the same after a restart.", Text(64)] = ""
    name: Annotated[str, "Name of the query.", Text(253)] = ""
    batch_id: Annotated[int | None, "Number of the query's last batch.", _BATCH] = None
    rows_per_second: Annotated[int | None, "Records read a second, in the last batch.", COUNT] = (
        None
    )
    lag: Annotated[int | None, "Records in the topics that the query has not read yet.", COUNT] = (
        None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJobStatus:
    """State and progress of the job."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None
    phase: Annotated[
        JobPhase | None, "State of the job; the condition Ready says why and since when."
    ] = None
    run: Annotated[int | None, "Number of drivers that have been started.", COUNT] = None
    restarts: Annotated[int | None, "Drivers that ended on their own and were replaced.", COUNT] = (
        None
    )
    restarts_in_a_row: Annotated[
        int | None, "Restarts since a driver last ran for ten minutes.", COUNT
    ] = None
    ended_run: Annotated[int | None, "The last run whose end the operator has recorded.", COUNT] = (
        None
    )
    stopped_run: Annotated[int | None, "The last run that the operator ended.", COUNT] = None
    outcome: Annotated[
        Literal["Succeeded", "Failed"] | None, "Result of the last run that ended on its own."
    ] = None
    batch_id: Annotated[
        int | None, "Number of the last batch; with several queries, the highest number.", _BATCH
    ] = None
    rows_per_second: Annotated[
        int | None, "Records read a second, all queries together.", COUNT
    ] = None
    lag: Annotated[int | None, "Records in the topics that the job has not read yet.", COUNT] = None
    queries: Annotated[tuple[JobQuery, ...], "The streaming queries.", Bound(QUERIES_MAX)] = ()
    executors: Annotated[int | None, "Executors that run.", COUNT] = None
    driver: Annotated[str, "Address of the driver; Spark's web UI is at port 4040.", Text(300)] = ""
    job_hash: Annotated[
        str, "Hash of the spec that the last driver was created from.", Text(64)
    ] = ""
    last_error: Annotated[str, "Why the last driver failed.", Text(ERROR_LENGTH_MAX)] = ""
    started_at: Annotated[str | None, "When the last driver was created.", _TIME] = None
    ended_at: Annotated[str | None, "When the last run ended.", _TIME] = None
    retry_at: Annotated[str | None, "When the next attempt begins.", _TIME] = None
    next_run_at: Annotated[str | None, "When the schedule is due next.", _TIME] = None


STREAM_JOB: Final = ResourceDefinition(
    kind=STREAM_JOB_KIND,
    plural="streamjobs",
    short_names=("sj",),
    description=(
        "A PySpark job that reads topics of a LogCluster: a stream that runs all the time, or "
        "a load that ends."
    ),
    spec=StreamJobSpec,
    status=StreamJobStatus,
    root_rules=ROOT_RULES,
    columns=(
        Column("Phase", ".status.phase"),
        Column("Batch", ".status.batchId", "integer"),
        Column("Rows/s", ".status.rowsPerSecond", "integer"),
        Column("Lag", ".status.lag", "integer", "Records not read yet"),
        Column("Executors", ".status.executors", "integer"),
        Column("Restarts", ".status.restarts", "integer"),
        Column("Ready", READY),
        AGE,
        Column("Cluster", ".spec.clusterName", is_wide=True),
        Column("Run", ".status.run", "integer", is_wide=True),
        Column("Next Run", ".status.nextRunAt", is_wide=True),
        Column("Driver", ".status.driver", is_wide=True),
        Column("Last Error", ".status.lastError", is_wide=True),
    ),
    example="""\
apiVersion: fairlead.io/v1alpha1
kind: StreamJob
metadata:
  name: late-flights
spec:
  clusterName: demo
  application:
    sql: SELECT carrier AS key, to_json(struct(*)) AS value FROM flights WHERE dep_delay > 60
  sources:
    - topics: [flights]
      schema: carrier STRING, flight INT, origin STRING, dep_delay INT
      options: {startingOffsets: earliest}
  sink: {topic: late-flights}
  trigger: {processingTime: 5 seconds}
  checkpoint:
    claim: {size: 1Gi}
  executors:
    instances: 2
    memory: 1g
""",
)
