"""The document with which the operator or `fairlead spark run` tells a driver its StreamJob.

The package `fairlead_spark.job` reads it. The two packages share no code, only this document:

| field | what |
|---|---|
| `name`, `namespace`, `run` | the job, and the number of its run, which identifies a driver |
| `bootstrap` | addresses of the brokers |
| `clientConfig` | file with the settings for TLS and login; absent: neither is used |
| `application` | `{file, arguments}` or `{sql}` |
| `sources` | `{topics, view, schema, options}` |
| `sink` | `{topic, format, options, outputMode, saveMode}`, for sql |
| `trigger` | `{processingTime}`, `{availableNow: true}` or nothing |
| `checkpoint` | a folder or URI; absent: a temporary folder |
| `isCheckpointShared` | whether executors reach it, too, which queries with state need |
| `groupId` | the consumer group that shows progress |
| `conf` | settings of Spark |
| `progressPort` | port at which the driver reports its progress; 0: any free port |
"""

from collections.abc import Mapping
from typing import Any, Final

from fairlead_model.resources.stream_job import JobSink, JobSource, JobTrigger, StreamJobSpec

DOCUMENT_VERSION: Final = 1


def build_job_document(
    name: str,
    spec: StreamJobSpec,
    *,
    namespace: str = "",
    run: int = 1,
    bootstrap: str,
    client_config: str | None = None,
    file: str | None,
    checkpoint: str | None,
    conf: Mapping[str, str],
    progress_port: int,
) -> dict[str, Any]:
    """Return the document; `file` is the program's path for the driver, None for sql."""
    application: dict[str, Any] = {"arguments": list(spec.application.arguments)}
    if spec.application.sql is not None:
        application["sql"] = spec.application.sql
    else:
        application["file"] = file
    claim = spec.checkpoint.claim
    document: dict[str, Any] = {
        "version": DOCUMENT_VERSION,
        "name": name,
        "namespace": namespace,
        "run": run,
        "bootstrap": bootstrap,
        "application": application,
        "sources": [_source(source) for source in spec.sources],
        "sink": None if spec.sink is None else _sink(spec.sink),
        "trigger": _trigger(spec.trigger),
        "checkpoint": checkpoint,
        "isCheckpointShared": spec.checkpoint.uri is not None
        or (claim is not None and claim.shared),
        "groupId": spec.group_id or name,
        "conf": dict(conf),
        "progressPort": progress_port,
    }
    if client_config is not None:
        document["clientConfig"] = client_config
    return document


def _source(source: JobSource) -> dict[str, Any]:
    return {
        "topics": list(source.topics),
        "view": source.view or source.topics[0],
        "schema": source.schema,
        "options": dict(source.options),
    }


def _sink(sink: JobSink) -> dict[str, Any]:
    return {
        "topic": sink.topic,
        "format": sink.format,
        "options": dict(sink.options),
        "outputMode": sink.output_mode,
        "saveMode": sink.save_mode,
    }


def _trigger(trigger: JobTrigger) -> dict[str, Any]:
    if trigger.available_now:
        return {"availableNow": True}
    if trigger.processing_time is not None:
        return {"processingTime": trigger.processing_time}
    return {}
