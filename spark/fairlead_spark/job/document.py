"""The document that describes a job; the program that starts the driver writes it.

| field | what |
|---|---|
| `version` | 1 |
| `name`, `namespace`, `run` | the job, and the number of its run |
| `bootstrap` | addresses of the brokers |
| `clientConfig` | file with the settings for TLS and login; absent: neither is used |
| `application` | `{file, arguments}` or `{sql}` |
| `sources` | `[{topics, view, schema, options}]` |
| `sink` | `{topic, format, options, outputMode, saveMode}`, for sql; else null |
| `trigger` | `{processingTime}`, `{availableNow: true}` or empty |
| `checkpoint` | folder or URI; null: a temporary folder |
| `isCheckpointShared` | whether every executor reaches it |
| `groupId` | consumer group that shows the progress |
| `conf` | settings of Spark; `${NAME}` stands for a variable of the environment |
| `progressPort` | port of the page with the job's progress; 0: any free port |
"""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

VERSION: Final = 1
DOCUMENT_VARIABLE: Final = "FAIRLEAD_JOB"
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class JobDocumentError(Exception):
    """There is no document, or it is invalid; the text says why."""


@dataclass(frozen=True)
class Source:
    """Topics that are read."""

    topics: tuple[str, ...]
    view: str
    schema: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class Sink:
    """The target for the result of a SQL query: a topic, or a format of Spark."""

    topic: str | None
    format: str | None
    options: Mapping[str, str]
    output_mode: str
    save_mode: str


@dataclass(frozen=True)
class Job:
    """A job as its driver sees it."""

    name: str
    bootstrap: str
    group_id: str
    run: int = 1
    namespace: str = ""
    file: str | None = None
    sql: str | None = None
    arguments: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    sink: Sink | None = None
    trigger: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `DataStreamWriter.trigger`; empty means no trigger."""
    checkpoint_folder: str = ""
    is_checkpoint_shared: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    progress_port: int = 0
    client_config: str | None = None
    """File, on the driver and on all executors, with a client's security settings."""

    def checkpoint(self, query: str) -> str:
        """Return the checkpoint of one of the job's queries; each query needs its own."""
        return f"{self.checkpoint_folder.rstrip('/')}/{query}"

    def source_options(self, *topics: str) -> dict[str, str]:
        """Options by which `format("fairlead")` reads topics and shows progress as the job's group.

        The options of a source that the job declares with these topics are added.
        """
        options = {
            **self._connection(),
            "subscribe": ",".join(topics),
            "kafka.group.id": self.group_id,
        }
        for source in self.sources:
            if source.topics == topics:
                options |= source.options
        return options

    def sink_options(self, topic: str) -> dict[str, str]:
        """Return options by which `format("fairlead")` writes a topic."""
        return {**self._connection(), "topic": topic}

    def _connection(self) -> dict[str, str]:
        options = {"kafka.bootstrap.servers": self.bootstrap}
        if self.client_config is not None:
            options["clientConfig"] = self.client_config
        return options


def current_job() -> Job:
    """Return the job of this process; JobDocumentError if it is no driver of a job."""
    path = os.environ.get(DOCUMENT_VARIABLE)
    if not path:
        raise JobDocumentError(
            "this program was not started as a job: run it with `fairlead spark run FILE`"
        )
    return read_job(Path(path))


def read_job(path: Path) -> Job:
    """Read a document; JobDocumentError says what is wrong with it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document["version"]
        if version != VERSION:
            raise JobDocumentError(f"{path} has version {version}, this is version {VERSION}")
        return _read(document)
    except OSError as error:
        raise JobDocumentError(f"{path}: {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise JobDocumentError(f"{path} is not a job: {error!r}") from error


def _read(document: Mapping[str, Any]) -> Job:
    application, sink = document["application"], document.get("sink")
    return Job(
        name=document["name"],
        namespace=document.get("namespace", ""),
        run=int(document.get("run", 1)),
        bootstrap=document["bootstrap"],
        group_id=document["groupId"],
        file=application.get("file"),
        sql=application.get("sql"),
        arguments=tuple(application.get("arguments") or ()),
        sources=tuple(
            Source(
                topics=tuple(source["topics"]),
                view=source["view"],
                schema=source.get("schema", ""),
                options=dict(source.get("options") or {}),
            )
            for source in document.get("sources") or ()
        ),
        sink=None
        if sink is None
        else Sink(
            topic=sink.get("topic"),
            format=sink.get("format"),
            options=dict(sink.get("options") or {}),
            output_mode=sink["outputMode"],
            save_mode=sink["saveMode"],
        ),
        trigger=dict(document.get("trigger") or {}),
        checkpoint_folder=document.get("checkpoint") or _temporary_folder(),
        is_checkpoint_shared=bool(document.get("isCheckpointShared")),
        conf={
            name: _VARIABLE.sub(lambda found: os.environ.get(found[1], found[0]), value)
            for name, value in (document.get("conf") or {}).items()
        },
        progress_port=int(document.get("progressPort") or 0),
        client_config=document.get("clientConfig"),
    )


def _temporary_folder() -> str:
    """Return the process's temporary folder: a job that is read twice has one place."""
    folder = Path(tempfile.gettempdir()) / f"fairlead-checkpoint-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    return str(folder)
