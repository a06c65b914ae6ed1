"""The exactly-once pipeline sees what is lost, twice or wrong; a seed gives its faults again."""

from fairlead_bench.scenarios.exactly_once_pipeline import Comparison, count_late, transform
from fairlead_bench.scenarios.pipeline_faults import LAST_SHARE, Target, plan_faults

RECORDS = 45


def compare(rows: list[tuple[bytes, bytes]]) -> Comparison:
    comparison = Comparison(RECORDS)
    for row in rows:
        comparison.add(*row)
    return comparison


def late() -> list[tuple[bytes, bytes]]:
    return [row for number in range(RECORDS) if (row := transform(number)) is not None]


def test_the_whole_transform_once_is_equal_in_any_order() -> None:
    assert count_late(RECORDS) == len(late()) == 20
    assert compare(late()[::-1]).is_equal


def test_a_record_that_did_not_come_is_lost() -> None:
    found = compare(late()[1:])
    assert (found.lost, found.twice, found.wrong, found.is_equal) == (1, 0, [], False)


def test_a_record_that_came_again_is_twice() -> None:
    found = compare([*late(), late()[3]])
    assert (found.lost, found.twice, found.wrong, found.is_equal) == (0, 1, [], False)


def test_what_no_input_gives_is_wrong() -> None:
    left_out, beyond, changed = (b"3", b'{"n":3,"twice":6}'), (b"51", b'{"n":51,"twice":22}'), b"{}"
    found = compare([*late()[1:], left_out, beyond, (late()[0][0], changed)])
    assert (found.lost, found.twice, len(found.wrong), found.is_equal) == (1, 0, 3, False)


def test_a_seed_gives_its_faults_again_and_each_kind_of_target() -> None:
    plan = plan_faults(7, 10)
    assert plan == plan_faults(7, 10) != plan_faults(8, 10)
    assert {fault.target for fault in plan} == set(Target)
    shares = [fault.share for fault in plan]
    assert shares == sorted(shares)
    assert shares[-1] <= LAST_SHARE
