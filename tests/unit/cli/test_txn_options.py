"""What `txn` refuses before it asks a broker."""

from click.testing import CliRunner

from fairlead_cli.main import fairlead


def test_a_wrong_pattern_is_refused_with_the_reason() -> None:
    refused = CliRunner().invoke(fairlead, ["txn", "list", "--id-pattern", "("])
    assert refused.exit_code == 2
    assert "'(' is not a regular expression of RE2: missing )" in refused.output
