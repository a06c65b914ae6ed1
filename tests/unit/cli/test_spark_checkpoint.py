"""Where `fairlead spark run` keeps a job; `--fresh` deletes checkpoints, and nothing else."""

from pathlib import Path

import pytest

from fairlead_cli.errors import CliError, InputError
from fairlead_cli.spark.driver_process import DriverProcess
from fairlead_cli.spark.local_job import choose_checkpoint, read_local_job
from fairlead_cli.spark.run import forget_checkpoint

MANIFEST = """\
apiVersion: fairlead.io/v1alpha1
kind: StreamJob
metadata: {name: copies}
spec:
  application: {sql: SELECT * FROM orders}
  sources: [{topics: [orders], schema: id INT}]
  sink: {topic: copies}
  checkpoint: {uri: "s3a://bucket/copies"}
"""


@pytest.mark.parametrize("as_uri", [False, True])
def test_a_checkpoint_is_forgotten(tmp_path: Path, as_uri: bool) -> None:
    place = tmp_path / "my checkpoint"
    for query in ("delays", "totals"):
        (place / query / "offsets").mkdir(parents=True)
        (place / query / "metadata").touch()
    forget_checkpoint(place.as_uri() if as_uri else str(place))
    assert not place.exists()
    forget_checkpoint(str(place))


@pytest.mark.parametrize("with_query", [False, True])
def test_a_folder_of_files_is_no_checkpoint(tmp_path: Path, with_query: bool) -> None:
    """It was deleted with all that was in it."""
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("three years of work")
    if with_query:
        (tmp_path / "delays").mkdir()
        (tmp_path / "delays" / "metadata").touch()
    with pytest.raises(CliError, match="holds something else than checkpoints: it stays"):
        forget_checkpoint(str(tmp_path))
    assert thesis.read_text() == "three years of work"


def test_the_place_that_is_asked_for_counts_more_than_that_of_the_manifest(tmp_path: Path) -> None:
    """It was ignored without a word, and `--fresh` forgot another one."""
    file = tmp_path / "job.yaml"
    file.write_text(MANIFEST)
    job = read_local_job(file)
    default = tmp_path / "checkpoint"
    assert choose_checkpoint(job, None, default) == "s3a://bucket/copies"
    assert choose_checkpoint(job, tmp_path / "asked", default) == str(tmp_path / "asked")
    (tmp_path / "job.py").touch()
    assert choose_checkpoint(read_local_job(tmp_path / "job.py"), None, default) == str(default)


def test_a_checkpoint_elsewhere_is_not_forgotten_in_silence() -> None:
    with pytest.raises(InputError, match="s3a://bucket/copies is not on this machine"):
        forget_checkpoint("s3a://bucket/copies")


def test_a_folder_that_cannot_hold_a_job_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spark").touch()
    with pytest.raises(CliError, match=f"cannot keep the job in {tmp_path}/spark/job: Not a dir"):
        DriverProcess(tmp_path / "spark" / "job", {"name": "job"}).prepare()
    with pytest.raises(CliError, match="cannot forget the checkpoint"):
        forget_checkpoint(str(tmp_path / "spark"))
