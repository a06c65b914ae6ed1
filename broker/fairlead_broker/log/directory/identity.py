"""To which broker a data directory belongs, and how the previous process ended.

`meta.properties` names cluster, node and the directory itself (`directory.id`, created once: a
directory without it is a new disk). `.kafka_cleanshutdown` says that everything was flushed, and
by which start of the broker. Three small files are Fairlead's own. `fairlead-start.json` keeps the
id of this start until the controller has answered its registration, so that a repeated registration
is recognised. `fairlead-boot.json` has the kernel's boot id and the broker epoch of the last
registered start. `fairlead-metadata.json` has the version of the controller's metadata that this
broker has seen last: it reveals that a controller's store was restored from a copy. All are written
durably; the few fsyncs happen before the broker serves, or in a thread.
"""

import json
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairlead_broker.disk import Disk, replace_file, unlink_if_present
from fairlead_broker.log.files.file_names import (
    BOOT_RECORD,
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    METADATA_RECORD,
    START_RECORD,
)
from fairlead_broker.log.files.small_files import read_small_file
from fairlead_broker.log.files.text_files import (
    RELEASE_PROPERTY,
    CorruptFileError,
    NewerFormatError,
    decode_json_object,
    decode_meta_properties,
    encode_clean_shutdown,
    encode_meta_properties,
)
from fairlead_model.metadata_seen import NOTHING_SEEN, MetadataSeen
from fairlead_model.release import RELEASE

NO_BROKER_EPOCH: Final = -1
BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"


class ForeignDirectoryError(Exception):
    """The directory belongs to another cluster or node; a start with it would mix their data."""


@dataclass(frozen=True, slots=True)
class StartRecord:
    """What a registration reports to the controller about this start."""

    directory_id: str
    start_id: str
    boot_id: str
    """Empty if the kernel's boot id is unreadable; an empty id equals no other."""
    was_clean: bool
    previous_broker_epoch: int
    """Epoch of the start that stopped cleanly, else of the last registered start; -1 for none."""
    is_same_boot: bool
    """True if the kernel has run since the last registered start, so the page cache was kept."""
    marked_broker_epoch: int = NO_BROKER_EPOCH
    """Epoch of the start that stopped cleanly, if no later start has appended anything."""


def kernel_boot_id() -> str:
    """Return the running kernel's boot id, empty if it cannot be read."""
    try:
        return Path(BOOT_ID_FILE).read_text(encoding="ascii").strip()
    except OSError:
        return ""


class DirectoryIdentity:
    """Reads and writes the files that say to which broker a directory belongs."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def claim(self, *, cluster_id: str | None, node_id: int) -> dict[str, str]:
        """Return the properties of the directory, and claim it for this broker if it is new.

        ForeignDirectoryError if it belongs to another broker. If the cluster id is unknown (None),
        the caller has to claim again when it is known.
        """
        properties = self._properties() or {}
        recorded_cluster = properties.get("cluster.id", "")
        recorded_node = properties.get("node.id", str(node_id))
        if cluster_id is not None and recorded_cluster not in ("", cluster_id):
            raise ForeignDirectoryError(
                f"{self._path} belongs to cluster {recorded_cluster}, not to {cluster_id}"
            )
        if recorded_node != str(node_id):
            raise ForeignDirectoryError(
                f"{self._path} belongs to node {recorded_node}, not to {node_id}"
            )
        claimed = {
            "version": "1",
            "cluster.id": cluster_id or recorded_cluster,
            "node.id": str(node_id),
            "directory.id": properties.get("directory.id") or _random_id(),
            RELEASE_PROPERTY: RELEASE,
        }
        if claimed != properties:
            content = encode_meta_properties(
                cluster_id=claimed["cluster.id"],
                node_id=node_id,
                directory_id=claimed["directory.id"],
            )
            self._replace(META_PROPERTIES, content)
        return claimed

    def begin_start(self, directory_id: str, boot_id: str) -> StartRecord:
        """Return how the last process ended, and an id for this start. Nothing is removed yet."""
        clean = self._json(CLEAN_SHUTDOWN)
        start = self._json(START_RECORD) or {}
        boot = self._json(BOOT_RECORD) or {}
        start_id = str(start.get("startId") or "")
        if not start_id:
            start_id = _random_id()
            self._replace(START_RECORD, json.dumps({"startId": start_id}).encode())
        return StartRecord(
            directory_id=directory_id,
            start_id=start_id,
            boot_id=boot_id,
            was_clean=clean is not None,
            # If there is a marker beside the record of a later start, that start appended nothing.
            previous_broker_epoch=max(_epoch(clean or {}), _epoch(boot)),
            is_same_boot=bool(boot_id) and boot.get("bootId") == boot_id,
            marked_broker_epoch=_epoch(clean or {}),
        )

    def note_start(self, *, broker_epoch: int, boot_id: str) -> None:
        """Note which start the controller has registered."""
        record = {"bootId": boot_id, "brokerEpoch": broker_epoch}
        self._replace(BOOT_RECORD, json.dumps(record).encode())

    def forget_stop(self) -> None:
        """Remove the marker of a clean stop: from now on an end without a marker is unclean.

        Call it after `note_start` and before the first append: else a crash after an append would
        look like a clean stop.
        """
        unlink_if_present(self._disk, f"{self._path}/{CLEAN_SHUTDOWN}")
        unlink_if_present(self._disk, f"{self._path}/{START_RECORD}")
        self._disk.fsync_directory(self._path)

    def mark_clean(self, broker_epoch: int) -> None:
        """Write the marker, the very last write of a clean stop."""
        self._replace(CLEAN_SHUTDOWN, encode_clean_shutdown(broker_epoch))

    def metadata_seen(self) -> MetadataSeen:
        """Return the latest version of the metadata that earlier processes have seen."""
        record = self._json(METADATA_RECORD)
        if record is None:
            return NOTHING_SEEN
        epoch, writes = record.get("controllerEpoch"), record.get("writes")
        if type(epoch) is not int or type(writes) is not int:
            return NOTHING_SEEN
        return MetadataSeen(epoch, writes)

    def note_metadata(self, seen: MetadataSeen) -> None:
        """Write durably which version of the metadata was seen."""
        record = {"controllerEpoch": seen.controller_epoch, "writes": seen.writes}
        self._replace(METADATA_RECORD, json.dumps(record).encode())

    def _properties(self) -> dict[str, str] | None:
        try:
            return decode_meta_properties(
                read_small_file(self._disk, f"{self._path}/{META_PROPERTIES}")
            )
        except FileNotFoundError:
            return None
        except NewerFormatError as error:
            raise NewerFormatError(f"{self._path}: {error}") from None
        except CorruptFileError as error:
            raise ForeignDirectoryError(
                f"{self._path}/{META_PROPERTIES} is unreadable: {error}"
            ) from error

    def _json(self, name: str) -> dict[str, object] | None:
        """Return a JSON file; None if it is missing or damaged: a damaged marker counts as none."""
        try:
            return decode_json_object(read_small_file(self._disk, f"{self._path}/{name}"))
        except (FileNotFoundError, ValueError):
            return None

    def _replace(self, name: str, content: bytes) -> None:
        replace_file(self._disk, f"{self._path}/{name}", content, durable=True)


def _epoch(record: dict[str, object]) -> int:
    epoch = record.get("brokerEpoch")
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH


def _random_id() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
