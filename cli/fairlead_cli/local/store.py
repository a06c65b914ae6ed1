"""The metadata store of a local cluster: files, or ZooKeeper (`fairlead up --store`)."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead_cli.errors import InputError
from fairlead_model.configs.config_key import ConfigError

if TYPE_CHECKING:
    from fairlead_cli.local.layout import Layout
    from fairlead_zookeeper.address import ZooKeeperAccess

FORM = "zookeeper://HOST:PORT[,HOST:PORT…]/CHROOT"


def choose_store(layout: Layout, asked: str | None) -> str | None:
    """Return the requested address in ZooKeeper, or that of the last start.

    None: in files. InputError if existing metadata would be left behind. Other servers of the same
    ensemble may be named: a controller refuses a cluster other than the one that it knows.
    """
    remembered = read_store(layout)
    if asked is None:
        return remembered
    chroot = parse_store(asked).chroot
    if remembered is None and any(layout.controller_directory.glob("metadata-*.journal")):
        data = shlex.quote(str(layout.root))
        raise InputError(
            f"{layout.root} keeps its metadata in files, not in ZooKeeper",
            hint="Move it there:\n"
            f"  fairlead metadata export metadata.json --data {data}\n"
            f"  fairlead metadata restore metadata.json --store {shlex.quote(asked)}\n"
            f"  mv {shlex.quote(str(layout.controller_directory))} /tmp/old-metadata\n"
            "or take another folder with --data DIR.",
        )
    if remembered is not None and parse_store(remembered).chroot != chroot:
        raise InputError(
            f"{layout.root} keeps its metadata at {remembered}, not at {asked}",
            hint="Leave --store away, or take another folder with --data DIR.",
        )
    return asked


def read_store(layout: Layout) -> str | None:
    """Return the address of a folder's metadata in ZooKeeper; None: in files."""
    try:
        return layout.store_file.read_text(encoding="utf-8").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None  # The code that creates the folder reports what is wrong with its path.


def parse_store(address: str) -> ZooKeeperAccess:
    """Read an address; InputError."""
    from fairlead_zookeeper.address import SCHEME, ZooKeeperAddressError, parse_connect_string

    if not address.startswith(SCHEME):
        raise InputError(f"--store: {address!r} is not {FORM}")
    try:
        return parse_connect_string(address)
    except ZooKeeperAddressError as error:
        raise InputError(f"--store: {error}", hint=f"Write {FORM}.") from error


def open_access(address: str) -> ZooKeeperAccess:
    """Return the access for Fairlead's commands; user and ACLs are from the environment."""
    from fairlead_model.configs.config_values import BrokerValues
    from fairlead_model.configs.setting_sources import merge_settings, read_environment
    from fairlead_zookeeper.access_settings import CONNECT, read_access_settings

    named = {CONNECT: parse_store(address).connect_string}
    environment, _ = read_environment(os.environ)
    try:
        merged = merge_settings(file={}, environment=environment, assignments=named)
        settings = read_access_settings(BrokerValues(static=merged))
        if settings is None:
            raise RuntimeError("an address was given")
        if settings.digest_file is None:
            return settings.access
        with Path(settings.digest_file).open("rb") as file:
            return settings.with_digest(file.read(), os.fstat(file.fileno()).st_mode)
    except ConfigError as error:
        raise InputError(error.message) from error
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error
