"""A start on a disk that takes nothing more leaves the files of the last one as they are."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

# Imported before a disk is full: Python 3.11 would keep the part of its bytecode that has room.
import fairlead_operator.certificates.authority  # noqa: F401
from fairlead_cli.local.cluster_file import ClusterFile
from fairlead_cli.local.cluster_supervisor import ClusterSupervisor
from fairlead_cli.local.layout import Layout, Ports
from fairlead_cli.local.log_directories import find_log_directories
from fairlead_cli.local.plan import LaunchPlan
from fairlead_cli.local.preflight import hold_data_directory
from fairlead_cli.local.secure_files import choose_secure
from fairlead_cli.local.store import read_store
from fairlead_model.session.session_protocol import parse_secret


class Silence:
    """An audience that nothing is told."""

    def progress(self, name: str, text: str) -> None:
        pass

    def warning(self, name: str, text: str) -> None:
        pass

    def ready(self, cluster: ClusterFile, seconds: float) -> None:
        pass

    def output(self, lines: list[tuple[str, str]]) -> None:
        pass

    def settle(self) -> None:
        pass


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """Files may be made and emptied, but take no more than so many bytes each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def start(plan: LaunchPlan) -> Layout:
    with hold_data_directory(plan.layout):
        ClusterSupervisor(plan, Silence()).prepare_files()
    return plan.layout


def fail_to_start(plan: LaunchPlan, *, room: int = 0) -> Layout:
    with (
        hold_data_directory(plan.layout),
        pytest.raises(OSError, match="File too large"),
        full_disk(room),
    ):
        ClusterSupervisor(plan, Silence()).prepare_files()
    return plan.layout


@pytest.fixture
def plan(tmp_path: Path) -> LaunchPlan:
    return LaunchPlan(tmp_path / "data", 2, Ports(9092, 8080), {}, ())


def test_the_first_start_can_be_tried_again(plan: LaunchPlan) -> None:
    fail_to_start(plan)
    layout = start(plan)
    assert len(parse_secret(layout.secret_file.read_bytes())) == 64
    assert layout.secret_file.stat().st_mode & 0o777 == 0o600


def test_brokers_find_their_folders_on_other_disks(plan: LaunchPlan, tmp_path: Path) -> None:
    plan = replace(plan, log_directories=(str(tmp_path / "disk"),))
    start(plan)
    layout = fail_to_start(plan)
    for broker_id in range(2):
        folders = find_log_directories(layout, broker_id)
        assert folders == (tmp_path / f"disk/broker-{broker_id}",)


def test_where_in_zookeeper_the_metadata_is_stays_known(plan: LaunchPlan) -> None:
    plan = replace(plan, store="zookeeper://127.0.0.1:2181/fairlead")
    start(plan)
    # Without brokers, whose files come first, and would not fit either.
    layout = fail_to_start(replace(plan, brokers=0))
    assert read_store(layout) == plan.store


def test_a_secure_cluster_has_a_whole_authority_or_none(plan: LaunchPlan) -> None:
    plan = replace(plan, ports=Ports(9092, 8080, is_secure=True))
    # Enough for the authority's key, and not for its certificate.
    layout = fail_to_start(plan, room=300)
    assert layout.ca_key.exists()
    assert not choose_secure(layout, asked=False)
    start(plan)
    assert layout.ca_certificate.read_text().startswith("-----BEGIN CERTIFICATE-----")
