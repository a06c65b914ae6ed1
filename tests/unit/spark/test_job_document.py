import json
from pathlib import Path

import pytest

from fairlead_model.resources.job_document import build_job_document
from fairlead_model.resources.stream_job import (
    JobApplication,
    JobCheckpoint,
    JobSource,
    StreamJobSpec,
)
from fairlead_spark.job.document import (
    DOCUMENT_VARIABLE,
    Job,
    JobDocumentError,
    current_job,
    read_job,
)


def write(folder: Path, **conf: str) -> Path:
    """A document as the operator and the command line write it."""
    spec = StreamJobSpec(
        application=JobApplication(file="/opt/job.py", arguments=("--fast",)),
        checkpoint=JobCheckpoint(uri="s3a://bucket/job"),
        sources=(JobSource(topics=("flights",), options={"startingOffsets": "earliest"}),),
    )
    document = build_job_document(
        "delays",
        spec,
        run=3,
        bootstrap="demo:9092",
        file="/opt/job.py",
        checkpoint="s3a://bucket/job",
        conf=conf,
        progress_port=8090,
    )
    path = folder / "job.json"
    path.write_text(json.dumps(document))
    return path


def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    monkeypatch.setenv(DOCUMENT_VARIABLE, str(write(tmp_path, address="${POD_IP}", kept="$NOPE")))
    job = current_job()
    assert (job.name, job.run, job.file, job.arguments) == ("delays", 3, "/opt/job.py", ("--fast",))
    assert job.conf == {"address": "10.0.0.7", "kept": "$NOPE"}
    assert job.checkpoint("q") == "s3a://bucket/job/q"
    assert job.is_checkpoint_shared


@pytest.mark.parametrize(
    "value",
    ["pa$$word", "$POD_IP", "a-$", "${POD", "${spark.app.name}", "${NOPE}", "(secret$|x$$)"],
)
def test_a_setting_with_dollars_is_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Only a name in braces stands for a variable: two dollars of a password became one."""
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    monkeypatch.delenv("NOPE", raising=False)
    assert read_job(write(tmp_path, password=value)).conf == {"password": value}


def test_options_of_a_declared_source_come_on_top() -> None:
    path_options = {
        "kafka.bootstrap.servers": "demo:9092",
        "subscribe": "flights",
        "kafka.group.id": "delays",
    }
    plain = Job(name="delays", bootstrap="demo:9092", group_id="delays")
    assert plain.source_options("flights") == path_options


def test_source_and_sink_take_the_clients_file_of_the_job(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert "clientConfig" not in read_job(path).sink_options("late")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"clientConfig": "/etc/client"}))
    job = read_job(path)
    assert job.source_options("flights")["clientConfig"] == "/etc/client"
    assert job.sink_options("late")["clientConfig"] == "/etc/client"


def test_sources_bring_their_options(tmp_path: Path) -> None:
    job = read_job(write(tmp_path))
    assert job.source_options("flights")["startingOffsets"] == "earliest"
    assert "startingOffsets" not in job.source_options("weather")


def test_outside_of_a_job_the_error_says_how_to_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DOCUMENT_VARIABLE, raising=False)
    with pytest.raises(JobDocumentError, match="fairlead spark run"):
        current_job()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "name": "x"}'])
def test_what_is_no_document_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(JobDocumentError):
        read_job(path)
