"""A log in a directory on a simulated disk, opened as at a broker's start."""

from log_batches import TOPIC_ID
from simulated_disk import SimulatedDisk

from fairlead_broker.log.directory.load_report import LoadReport
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.log import Log
from fairlead_model.configs.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=300)


def start(disk: SimulatedDisk) -> tuple[LogDirectory, LoadReport]:
    directory = LogDirectory("/d", node_id=0, cluster_id="c", disk=disk, boot_id="b")
    report = directory.load(0, config_for=lambda topic, partition: CONFIG)
    return directory, report


def started_log(disk: SimulatedDisk) -> tuple[LogDirectory, Log]:
    directory, _ = start(disk)
    directory.confirm_start(1)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    sync = directory.begin_sync()
    assert sync is not None
    sync.run()
    return directory, log
