"""Options that several verbs share, so that they have the same names and texts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fairlead_cli.advice import CLIENT_CONFIG
from fairlead_cli.data_directory import DATA_DEFAULT

# Numbers of the Kafka protocol.
INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
# librdkafka refuses more; the cluster decides how many a topic may have.
PARTITIONS_MAX = 100_000
REPLICAS_MAX = 10_000
EMPTY = "it is empty"
Command = TypeVar("Command", bound=Callable[..., Any])


class _DataDirectory(click.Path):
    """A folder that has a name: an empty one would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the folder (called by click)."""
        if value == "":
            self.fail(EMPTY, param, ctx)
        return super().convert(value, param, ctx)


def data_option(command: Command) -> Command:
    """Add `--data DIR`, which names a local cluster."""
    return click.option(
        "--data",
        type=_DataDirectory(file_okay=False, path_type=Path),
        default=DATA_DEFAULT,
        show_default=True,
        envvar="FAIRLEAD_DATA",
        help="Data directory of the local cluster.",
    )(command)


def bootstrap_option(command: Command) -> Command:
    """Add `--bootstrap HOST:PORT` for any Kafka-compatible cluster, and `--client-config`."""
    command = click.option(
        "--client-config",
        metavar="FILE",
        envvar="FAIRLEAD_CLIENT_CONFIG",
        expose_value=False,
        callback=_read_client_config,
        help=(
            "File of librdkafka settings, to log in to a secure cluster; not needed with --data."
        ),
    )(command)
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="FAIRLEAD_BOOTSTRAP",
        callback=_require_address,
        help="Address of any Kafka-compatible cluster, instead of --data.",
    )(command)


def _require_address(_ctx: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """Refuse an empty address: the command would go to a local cluster (an option's callback)."""
    if value == "":
        raise click.BadParameter(EMPTY)
    return value


def _read_client_config(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Read the file that says how clients log in (an option's callback)."""
    from fairlead_cli.client.access import read_client_config

    context.meta[CLIENT_CONFIG] = value
    read_client_config(context, parameter, value)


def output_option(*formats: str) -> Callable[[Command], Command]:
    """Add `-o FORMAT`: the first format is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Output format.",
    )


def table_or_json(command: Command) -> Command:
    """Add `-o table|json`, for verbs whose answer has rows."""
    return output_option("table", "json")(command)


def parse_assignments(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """Return `KEY=VALUE` arguments as a dict; the last value of a key is used, as in a file."""
    assignments: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"'{text}' is not KEY=VALUE", param_hint=option)
        assignments[key.strip()] = value.strip()
    return assignments


def parse_number(text: str, maximum: int) -> int | None:
    """Return a whole number of ASCII digits, 0 to `maximum`; None for any other text."""
    if not (text.isascii() and text.isdecimal()):
        return None
    # Python refuses to convert thousands of digits.
    digits = text.lstrip("0") or "0"
    number = int(digits) if len(digits) <= len(str(maximum)) else maximum + 1
    return number if number <= maximum else None


def parse_numbers(text: str, maximum: int) -> set[int] | None:
    """Return the numbers of `0,2`, as `parse_number`; None for any other text."""
    numbers = {parse_number(part, maximum) for part in text.split(",")}
    known = {number for number in numbers if number is not None}
    return known if len(known) == len(numbers) else None


class FiniteRange(click.FloatRange):
    """A number in a range; not `inf`, and not `nan`, which click accepts in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number (called by click)."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number of this kind.", param, ctx)
        return number


def require_place(_ctx: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """Refuse a file that cannot be written, before long work whose outcome is written to it."""
    if value is None:
        return value
    try:
        place = value if value.exists() else value.parent
        is_there = place.exists()
    except OSError as error:
        raise click.BadParameter(f"{value}: {error.strerror}") from error
    if not is_there:
        raise click.BadParameter(f"there is no folder {place}")
    if not os.access(place, os.W_OK):
        raise click.BadParameter(f"{place} may not be written")
    return value


def require_name(_ctx: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """Refuse a name that is empty, or too long for a request (an option's callback).

    Client libraries fail in odd ways on these, or wait for an answer that never comes.
    """
    names = value if isinstance(value, tuple) else (value,)
    if "" in names:
        raise click.BadParameter(EMPTY)
    longest = max((len(str(name).encode(errors="replace")) for name in names), default=0)
    if longest > INT16_MAX:
        raise click.BadParameter(f"it has {longest} bytes; at most {INT16_MAX} fit")
    return value
