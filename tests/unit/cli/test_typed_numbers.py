"""Numbers in arguments: plain digits within the protocol's limits, else wrong usage."""

from collections.abc import Callable

import click
import pytest

from fairlead_cli.broker.disks import parse_replica
from fairlead_cli.drill.targets import parse_target
from fairlead_cli.errors import InputError
from fairlead_cli.features.update import parse_levels
from fairlead_cli.group.selection import TopicSelection, parse_selections
from fairlead_cli.options import INT32_MAX, parse_number, parse_numbers
from fairlead_cli.txn.durations import Duration
from fairlead_cli.whatif.target import parse_ids

# Python converts no more than 4300 digits.
UNCONVERTED = "9" * 5000
PARSERS: list[Callable[[str], object]] = [
    lambda digits: parse_levels((f"group.version={digits}",)),
    lambda digits: parse_replica(f"orders:{digits}"),
    lambda digits: parse_selections([f"orders:0,{digits}"]),
    lambda digits: parse_target(f"broker:{digits}"),
    lambda digits: parse_target(f"leader:orders/{digits}"),
    lambda digits: parse_ids(f"0,{digits}"),
    lambda digits: Duration().convert(f"{digits}d", None, None),
]


@pytest.mark.parametrize("digits", [UNCONVERTED, "9" * 20, "٣", "²", ""])
@pytest.mark.parametrize("parse", PARSERS)
def test_no_number_of_the_protocol_is_wrong_usage(
    parse: Callable[[str], object], digits: str
) -> None:
    with pytest.raises((click.BadParameter, InputError)):
        parse(digits)


def test_zeros_in_front_change_nothing() -> None:
    assert parse_number("0" * 5000 + "7", INT32_MAX) == 7
    assert parse_number("0", INT32_MAX) == 0
    assert parse_number(str(INT32_MAX), INT32_MAX) == INT32_MAX
    assert parse_number(str(INT32_MAX + 1), INT32_MAX) is None
    assert parse_numbers("2,0,2", INT32_MAX) == {0, 2}
    assert parse_selections(["a:2,0", "b", "a:1"]) == [
        TopicSelection("a", (0, 1, 2)),
        TopicSelection("b", None),
    ]
    assert parse_ids("2, 1") == [1, 2]
