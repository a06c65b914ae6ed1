"""What `group reset` means and plans, without a cluster."""

import click
import pytest
from click.testing import CliRunner

from fairlead_cli.client.groups import GroupDescription
from fairlead_cli.client.places import Place, build_no_partition_error
from fairlead_cli.errors import CliError
from fairlead_cli.group.reset import choose_target, print_plan
from fairlead_cli.group.reset_plan import PartitionFacts, plan_partition
from fairlead_cli.group.reset_target import (
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    describe_target,
    parse_datetime,
    parse_duration,
)
from fairlead_cli.group.selection import TopicSelection, expand_selection, parse_selections
from fairlead_cli.main import fairlead

NOTHING = {
    "to_earliest": False,
    "to_latest": False,
    "to_datetime": None,
    "to_offset": None,
    "shift_by": None,
    "to_current": False,
    "by_duration": None,
}
NOW_MS = 1_000_000_000


def facts(committed: int | None, at_time: int | None = None) -> PartitionFacts:
    """A log that holds offsets 10 to 99."""
    return PartitionFacts(Place("orders", 0), committed, 10, 100, at_time)


@pytest.mark.parametrize(
    ("target", "committed", "new", "note"),
    [
        (ToEarliest(), 50, 10, None),
        (ToLatest(), None, 100, None),
        (ToOffset(60), 50, 60, None),
        (ToOffset(100), 50, 100, None),
        (ToOffset(9), 50, 10, "9 is below the log start"),
        (ToOffset(101), 50, 100, "101 is beyond the log end"),
        (ShiftBy(-40), 50, 10, None),
        (ShiftBy(-41), 50, 10, "9 is below the log start"),
        (ShiftBy(51), 50, 100, "101 is beyond the log end"),
        (ShiftBy(1), None, None, "no committed offset to shift: left alone"),
        (ToCurrent(), 50, 50, None),
        (ToCurrent(), 3, 10, "3 is below the log start"),
        (ToCurrent(), None, 100, "no committed offset: the log end"),
        (ToTime(5), 50, 100, "no record is that new: the log end"),
    ],
)
def test_a_new_offset_lies_in_the_log(
    target: Target, committed: int | None, new: int | None, note: str | None
) -> None:
    planned = plan_partition(target, facts(committed))
    assert (planned.new, planned.note) == (new, note)
    assert planned.lag == (None if new is None else 100 - new)


def test_a_time_is_the_first_record_that_is_not_older() -> None:
    assert plan_partition(ToTime(5), facts(50, at_time=70)).new == 70


def test_only_another_offset_is_a_change() -> None:
    assert not plan_partition(ToOffset(50), facts(50)).is_change
    assert not plan_partition(ShiftBy(1), facts(None)).is_change
    assert plan_partition(ToOffset(50), facts(None)).is_change


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"to_earliest": True}, ToEarliest()),
        ({"to_latest": True}, ToLatest()),
        ({"to_current": True}, ToCurrent()),
        ({"to_offset": 0}, ToOffset(0)),
        ({"shift_by": -3}, ShiftBy(-3)),
        ({"to_datetime": "1970-01-01T00:00:01Z"}, ToTime(1000)),
        ({"by_duration": "PT15M"}, ToTime(NOW_MS - 900_000)),
    ],
)
def test_each_option_is_a_target(given: dict[str, object], target: Target) -> None:
    assert choose_target(NOTHING | given, now_ms=NOW_MS) == target


@pytest.mark.parametrize("given", [{}, {"to_earliest": True, "to_offset": 0}])
def test_no_target_or_two_are_wrong_usage(given: dict[str, object]) -> None:
    with pytest.raises(click.UsageError, match=r"exactly one of --to-earliest, .*--by-duration"):
        choose_target(NOTHING | given, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [
        ("90s", 90_000),
        ("2h", 7_200_000),
        ("PT2H30M", 9_000_000),
        ("P1DT1S", 86_401_000),
        ("p1w", 7 * 86_400_000),
    ],
)
def test_an_age_is_short_or_iso_8601(text: str, ago_ms: int) -> None:
    assert parse_duration(text, now_ms=NOW_MS) == ToTime(NOW_MS - ago_ms)


@pytest.mark.parametrize("text", ["99999999999999999999d", "P99999999999999999999D"])
def test_an_age_before_1970_is_the_oldest_time_there_is(text: str) -> None:
    assert parse_duration(text, now_ms=NOW_MS) == ToTime(0)


@pytest.mark.parametrize("text", ["", "P", "PT", "1", "-1h", "P1M", "P1Y", "1.5h", "soon"])
def test_an_age_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an age"):
        parse_duration(text, now_ms=NOW_MS)


def test_a_time_has_a_zone_or_is_local() -> None:
    assert parse_datetime("1970-01-01T02:00:00.250+02:00") == ToTime(250)
    with pytest.raises(ValueError, match="is not a time"):
        parse_datetime("yesterday")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (ShiftBy(-2), "2 records back"),
        (ShiftBy(2), "2 records forward"),
        (ShiftBy(1), "1 record forward"),
        (ToTime(1000), "to 1970-01-01T00:00:01.000Z"),
        (parse_datetime("9999-12-31T23:59:59-05:00"), "to @253402318799000"),
        (ToOffset(7), "to offset 7"),
    ],
)
def test_a_target_is_said_in_words(target: Target, words: str) -> None:
    assert describe_target(target) == words


def test_a_plan_that_moves_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    group = GroupDescription("billing", "Empty", "classic", False, "", None, ())
    print_plan(group, [plan_partition(ToCurrent(), facts(50))], ToCurrent(), is_executed=False)
    printed = capsys.readouterr()
    assert printed.err == "Nothing was changed: there is nothing to move.\n"
    assert printed.out.splitlines()[3].split()[:5] == ["orders", "0", "50", "50", "0"]


@pytest.mark.parametrize(
    ("known", "hint"), [([0], "It has 1 partition: 0."), ([1, 0, 2], "It has 3 partitions: 0-2.")]
)
def test_a_partition_that_is_not_there_is_answered_with_those_that_are(
    known: list[int], hint: str
) -> None:
    error = build_no_partition_error("orders", "7", known)
    assert (error.message, error.hint) == ("topic 'orders' has no partition 7", hint)


def test_topics_are_named_whole_or_by_partition() -> None:
    assert parse_selections(["a", "b:2,0", "b:1", "c:1", "c"]) == [
        TopicSelection("a", None),
        TopicSelection("b", (0, 1, 2)),
        TopicSelection("c", None),
    ]


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:x", "a:1,", "a:-1", "a:1:2"])
def test_a_topic_that_is_none_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not TOPIC or TOPIC:PARTITION"):
        parse_selections([text])


def test_a_selection_names_partitions_that_exist_and_are_led() -> None:
    leaders = {0: 1, 1: -1, 2: 0}
    assert expand_selection(TopicSelection("a", (0, 2)), leaders) == [("a", 0), ("a", 2)]
    with pytest.raises(CliError, match="no partition 3, 4"):
        expand_selection(TopicSelection("a", (0, 3, 4)), leaders)
    with pytest.raises(CliError, match="partition 1 of topic 'a' has no leader"):
        expand_selection(TopicSelection("a", None), leaders)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to-earliest"], "--topic T, or give --all-topics"),
        (["--to-earliest", "--topic", "a", "--all-topics"], "--topic T, or give --all-topics"),
        (["--topic", "a"], "exactly one of"),
        (["--topic", "a", "--to-latest", "--dry-run", "--execute"], "contradict"),
        (["--topic", "a", "--by-duration", "soon"], "is not an age"),
        (["--topic", "a:x", "--to-latest"], "is not TOPIC"),
        (["--topic", "a", "--to-offset", "-1"], "--to-offset"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_told_before_a_cluster_is_asked(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(fairlead, ["group", "reset", "g", *arguments, "--data", "none"])
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("verb", ["describe", "delete", "reset"])
def test_a_group_without_a_name_is_wrong_usage(verb: str) -> None:
    result = CliRunner().invoke(fairlead, ["group", verb, "", "--data", "none"])
    assert result.exit_code == 2
    assert "it is empty" in result.output
