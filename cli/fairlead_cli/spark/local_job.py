"""A job on this machine from a file: a Python program, or a StreamJob's manifest."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import yaml

from fairlead_cli.errors import InputError
from fairlead_cli.strict_yaml import StrictLoader
from fairlead_model.resources.job_document import build_job_document
from fairlead_model.resources.stream_job import (
    JobApplication,
    JobCheckpoint,
    JobTrigger,
    StreamJobSpec,
)
from fairlead_model.resources.topic_manifest import ManifestError

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST_SUFFIXES: Final = (".yaml", ".yml")
LOCAL_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    # A laptop has few cores: 200 tasks of an empty shuffle cost more than the shuffle.
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A job and the place of its program."""

    name: str
    spec: StreamJobSpec
    program: Path | None


def read_local_job(
    file: Path,
    *,
    arguments: tuple[str, ...] = (),
    name: str | None = None,
    available_now: bool = False,
) -> LocalJob:
    """Read a file; InputError says what is wrong with it."""
    if file.suffix in MANIFEST_SUFFIXES:
        job = _read_manifest(file, arguments)
    else:
        spec = StreamJobSpec(
            application=JobApplication(file=str(file), arguments=arguments),
            checkpoint=JobCheckpoint(ephemeral=True),
        )
        job = LocalJob(_name_of(file), spec, file.resolve())
    if available_now:
        spec = replace(job.spec, trigger=JobTrigger(available_now=True))
        job = replace(job, spec=spec)
    return job if name is None else replace(job, name=name)


def build_local_document(
    job: LocalJob,
    *,
    bootstrap: str,
    checkpoint: str,
    master: str,
    conf: Mapping[str, str],
    client_config: Path | None = None,
) -> dict[str, Any]:
    """Return the driver's document; the caller's settings take precedence over the job's."""
    return build_job_document(
        job.name,
        job.spec,
        bootstrap=bootstrap,
        client_config=None if client_config is None else str(client_config.resolve()),
        file=None if job.program is None else str(job.program),
        checkpoint=checkpoint,
        conf={**LOCAL_CONF, "spark.master": master, **job.spec.spark_conf, **conf},
        progress_port=0,
    )


def choose_checkpoint(job: LocalJob, asked: Path | None, default: Path) -> str:
    """Return the place of the checkpoint: requested, from the manifest, or the default."""
    if asked is None and job.spec.checkpoint.uri is not None:
        return job.spec.checkpoint.uri
    return str((asked or default).resolve())


def checkpoint_folder(place: str) -> Path | None:
    """Return the local folder of a checkpoint; None for other storage."""
    address = urlsplit(place)
    if address.scheme not in ("", "file") or address.netloc not in ("", "localhost"):
        return None
    return Path(unquote(address.path) if address.scheme else place)


def _read_manifest(file: Path, arguments: tuple[str, ...]) -> LocalJob:
    try:
        manifest = StrictLoader(file.read_text(encoding="utf-8")).get_single_data()
        spec = StreamJobSpec.from_manifest(manifest, is_local=True)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{file} is not YAML: {error}") from error
    except ManifestError as error:
        lines = "\n".join(f"  {problem}" for problem in error.problems)
        raise InputError(f"{file} is not a StreamJob that can run", hint=lines) from error
    application = spec.application
    if application.config_map is not None:
        raise InputError(
            f"{file}: a ConfigMap is there in Kubernetes only",
            hint="Run its program itself:\n  fairlead spark run PROGRAM.py",
        )
    if arguments:
        spec = replace(spec, application=replace(application, arguments=arguments))
    program = None
    if application.file is not None:
        # The path in an image does not exist here: use the file of this name next to the manifest.
        beside = file.parent / application.file.rpartition("/")[2]
        program = (file.parent / application.file).resolve()
        if not program.is_file() and beside.is_file():
            program = beside.resolve()
        if not program.is_file():
            raise InputError(
                f"{file}: there is no program {application.file}",
                hint=f"Looked for {program} and {beside}.",
            )
    return LocalJob(str(manifest["metadata"]["name"]), spec, program)


def _name_of(file: Path) -> str:
    """Return a name that is valid for topics, groups and files."""
    return re.sub(r"[^a-z0-9-]+", "-", file.stem.lower()).strip("-") or "job"
