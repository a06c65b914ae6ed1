"""`fairlead spark run FILE`: one job to its end, with its progress."""

from __future__ import annotations

from pathlib import Path

import click

from fairlead_cli.errors import CliError, ExitCode, InputError
from fairlead_cli.options import bootstrap_option, data_option, parse_assignments


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--name", metavar="NAME", help="Name of the job and its group. Default: that in the file."
)
@click.option(
    "--available-now",
    is_flag=True,
    help="Read the records that are there now and end, whatever the file says.",
)
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the job remembers how far it is. Default: checkpoint.uri of a manifest, or "
    "spark/NAME in the data directory.",
)
@click.option(
    "--fresh", is_flag=True, help="Delete the checkpoint first: start from the beginning."
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    metavar="MASTER",
    help="Where Spark runs: local[N] is N threads of this machine.",
)
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; repeatable.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@bootstrap_option
@data_option
def run(
    *,
    file: Path,
    arguments: tuple[str, ...],
    name: str | None,
    available_now: bool,
    checkpoint: Path | None,
    fresh: bool,
    master: str,
    conf: tuple[str, ...],
    quiet: bool,
    bootstrap: str | None,
    data: Path,
) -> int:
    """Run a PySpark program, or the StreamJob of a manifest, until it ends.

    The program finds format("fairlead") registered and asks fairlead_spark.job.current_job() for
    addresses, checkpoint and trigger, here as in Kubernetes. What it prints goes to stdout; Spark's
    log goes to a file that is named if the job fails. Ctrl-C ends it; the next run goes on from
    the checkpoint.

    \b
    Examples:
      fairlead spark run examples/spark/late_flights.yaml --available-now
      fairlead spark run examples/spark/jobs/flights_to_sqlite.py -- /tmp/flights.db
      fairlead spark run job.py --conf spark.driver.memory=2g -- --my-option 1
    """
    from fairlead_cli.client.access import configured_file
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.spark.driver_process import DriverProcess, require_spark
    from fairlead_cli.spark.local_job import (
        build_local_document,
        choose_checkpoint,
        read_local_job,
    )

    job = read_local_job(file, arguments=arguments, name=name, available_now=available_now)
    require_spark()
    folder = data / "spark" / job.name
    place = choose_checkpoint(job, checkpoint, folder / "checkpoint")
    addresses = resolve_bootstrap(bootstrap, data)
    document = build_local_document(
        job,
        bootstrap=addresses,
        client_config=configured_file(),
        checkpoint=place,
        master=master,
        conf=parse_assignments(conf, "--conf"),
    )
    process = DriverProcess(folder, document)
    process.prepare()
    if fresh:
        forget_checkpoint(place)
    code = process.run(with_progress=not quiet)
    if code:
        raise CliError(
            f"the job {job.name} failed: {process.describe_failure()}",
            hint=f"Spark's log: {process.log_file}",
        )
    return ExitCode.OK


def forget_checkpoint(place: str) -> None:
    """Delete a checkpoint, but no other folder given by mistake. CliError if that fails."""
    import shutil

    from fairlead_cli.spark.local_job import checkpoint_folder

    folder = checkpoint_folder(place)
    if folder is None:
        raise InputError(
            f"--fresh: the checkpoint {place} is not on this machine; nothing was started",
            hint="Delete it where it is, or begin anew elsewhere with --checkpoint DIR.",
        )
    try:
        if not folder.exists():
            return
        # A checkpoint has only a folder for each query.
        is_checkpoint = all((child / "metadata").is_file() for child in folder.iterdir())
        if is_checkpoint:
            shutil.rmtree(folder)
    except OSError as error:
        raise CliError(
            f"cannot forget the checkpoint {folder}: {error.strerror} ({error.filename})",
            hint="Name another folder with --checkpoint, or delete it yourself.",
        ) from error
    if not is_checkpoint:
        raise CliError(
            f"{folder} holds something else than checkpoints: it stays",
            hint="Name another folder with --checkpoint, or delete it yourself.",
        )
