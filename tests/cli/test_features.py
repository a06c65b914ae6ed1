"""`fairlead features describe|upgrade|downgrade`."""

from local_cluster import Cli


def test_levels_are_shown_raised_and_lowered(cli: Cli) -> None:
    assert cli.up("--brokers", "1").code == 0
    told = cli.ok("features", "describe", "-o", "json").json
    features = {each["name"]: each for each in told["features"]}
    ours = features["fairlead.version"]
    assert (ours["level"], ours["supportedByAll"], ours["mayFall"]) == (2, [1, 2], False)
    assert (ours["canBeRaisedTo"], ours["whyNot"]) == (None, None)
    assert told["brokers"] == {
        "0": {"fairlead.version": [1, 2], "group.version": [0, 1], "transaction.version": [0, 2]}
    }
    assert "highest level" in cli.ok("features", "upgrade").out

    falls = cli("features", "downgrade", "fairlead.version=1")
    assert (falls.code, "never falls" in falls.err) == (1, True), falls
    wrong = cli("features", "upgrade", "fairlead.version=3")
    assert (wrong.code, "this controller supports 1 to 2" in wrong.err) == (1, True), wrong
    assert cli("features", "upgrade", "fairlead.version=x").code == 2

    lowered = cli.ok("features", "downgrade", "transaction.version=1", "group.version=0")
    assert "In force: transaction.version=1, group.version=0" in lowered.out
    shown = cli.ok("features", "describe").out
    assert "2: an epoch for each transaction (KIP-890)" in shown
    dry = cli.ok("features", "upgrade", "--dry-run")
    assert "It would be: group.version=1, transaction.version=2" in dry.out
    cli.ok("features", "upgrade")
    again = cli.ok("features", "describe", "-o", "json").json
    assert {each["name"]: each["level"] for each in again["features"]} == {
        "fairlead.version": 2,
        "group.version": 1,
        "transaction.version": 2,
    }
    assert again["epoch"] == told["epoch"] + 2
