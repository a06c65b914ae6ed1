"""The command `python -m fairlead_broker`: settings, logging, limits of the process, exit codes.

`broker_process` builds everything else, in the order in which it starts and stops.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairlead_broker.session.supervisor_pipe import open_supervisor_pipe
from fairlead_broker.settings import Settings, build_settings
from fairlead_model.configs.config_values import ConfigError
from fairlead_model.configs.property_files import decode_properties
from fairlead_model.configs.setting_sources import read_assignments, read_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger("fairlead_broker")

EXIT_FAILED: Final = 1
EXIT_BAD_SETTINGS: Final = 2
GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Requests make few cycles; the default of 700 would collect in the middle of bursts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a broker until it is told to stop; the exit code."""
    supervisor = open_supervisor_pipe(os.environ)
    try:
        settings = _read_settings(arguments)
    except (ConfigError, OSError) as error:
        print(f"fairlead broker: {error}", file=sys.stderr)
        if supervisor is not None:
            supervisor.report_fatal(str(error))
        return EXIT_BAD_SETTINGS
    logging.basicConfig(
        level=settings.log_level,
        stream=sys.stderr,
        format=f"%(asctime)s broker {settings.node_id} %(levelname)s %(name)s: %(message)s",
    )
    _raise_open_file_limit()
    from fairlead_broker.broker_process import BrokerProcess, StartError

    try:
        process = BrokerProcess(settings, on_ready=_announce, supervisor=supervisor)
        asyncio.run(process.run())
    except StartError as error:
        print(f"fairlead broker {settings.node_id}: {error}", file=sys.stderr)
        if supervisor is not None:
            supervisor.report_fatal(str(error))
        return EXIT_FAILED
    return 0


def _read_settings(arguments: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(
        prog="python -m fairlead_broker", description="Run one Fairlead broker."
    )
    parser.add_argument("--config", metavar="FILE", help="settings as NAME=VALUE lines")
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="one setting; stronger than the environment (FAIRLEAD_LOG_DIRS …) and the file",
    )
    options = parser.parse_args(arguments)
    file = {}
    if options.config is not None:
        file = decode_properties(Path(options.config).read_bytes(), options.config)
    environment, warnings = read_environment(os.environ)
    for warning in warnings:
        print(f"fairlead broker: {warning}", file=sys.stderr)
    return build_settings(
        file=file, environment=environment, assignments=read_assignments(options.set)
    )


def _raise_open_file_limit() -> None:
    """Segments and connections need descriptors; the soft limit is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:
        logger.warning("the limit of %d open files stays: %s", soft, error)


def _announce(line: str) -> None:
    """Announce that the broker serves; objects of the start stay, so the GC skips them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    print(line, flush=True)
