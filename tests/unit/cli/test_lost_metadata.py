"""A folder with data of brokers and no metadata: no cluster begins over it."""

import subprocess
from pathlib import Path

import pytest

from fairlead_cli.errors import ExitCode, InputError
from fairlead_cli.local.layout import Layout
from fairlead_cli.local.lost_metadata import refuse_lost_metadata
from fairlead_cli.main import run as run_command


def broker_data(folder: Path, cluster_id: str = "an-id") -> Path:
    """A log directory, as a broker leaves it that a controller has told of its cluster."""
    folder.mkdir(parents=True)
    (folder / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\nnode.id=0\n")
    return folder


def test_data_without_metadata_is_refused_with_what_to_do(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data of mine")
    broker_data(layout.broker_directory(0))
    with pytest.raises(InputError, match="holds data of brokers, and no metadata") as caught:
        refuse_lost_metadata(layout, None, ())
    assert caught.value.exit_code is ExitCode.USAGE
    hint = caught.value.hint
    assert hint is not None
    assert f"fairlead metadata restore metadata.json --data '{layout.root}'" in hint
    assert f"cp -r COPY '{layout.controller_directory}'" in hint


def test_the_command_that_renames_the_data_of_several_disks_works(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data of mine")
    layout.broker_directory(0).mkdir(parents=True)
    disks = [tmp_path / "first disk", tmp_path / "second"]
    folders = [broker_data(disk / "broker-0") for disk in disks]
    chosen = tuple(map(str, disks))
    with pytest.raises(InputError) as caught:
        refuse_lost_metadata(layout, None, chosen)
    command = (caught.value.hint or "").splitlines()[-1]
    subprocess.run(["bash", "-ec", command], check=True)
    refuse_lost_metadata(layout, None, chosen)
    assert [folder.with_name("broker-0.old").is_dir() for folder in folders] == [True, True]


def test_data_on_other_disks_counts(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data")
    layout.broker_directory(0).mkdir(parents=True)
    broker_data(tmp_path / "disk" / "broker-0")
    refuse_lost_metadata(layout, None, ())
    with pytest.raises(InputError, match="no metadata"):
        refuse_lost_metadata(layout, None, (str(tmp_path / "disk"),))
    layout.config_directory.mkdir()
    layout.broker_config(0).write_text(f"log.dirs={tmp_path}/disk/broker-0\n")
    with pytest.raises(InputError, match="no metadata"):
        refuse_lost_metadata(layout, None, ())


@pytest.mark.parametrize("has_data", [False, True])
def test_all_else_starts(tmp_path: Path, has_data: bool) -> None:
    layout = Layout(tmp_path / "data")
    refuse_lost_metadata(layout, None, ())
    # A first start that ended before a controller had answered.
    broker_data(layout.broker_directory(0), cluster_id="")
    broken = broker_data(layout.broker_directory(1))
    (broken / "meta.properties").write_text("what is this")
    layout.controller_directory.mkdir()
    refuse_lost_metadata(layout, None, ())
    if has_data:
        broker_data(layout.broker_directory(2))
    refuse_lost_metadata(layout, "zookeeper://localhost:2181/fairlead", ())
    (layout.controller_directory / "metadata-0000000001.journal").touch()
    refuse_lost_metadata(layout, None, ())


@pytest.mark.parametrize("text", ["[]", '{"format": "something else"}'])
def test_a_document_of_something_else_makes_no_folder(text: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_text(text)
    data = tmp_path / "data"
    told = run_command(["metadata", "restore", f"{tmp_path}/wrong.json", "--data", str(data)])
    assert told == ExitCode.USAGE
    assert not data.exists()
