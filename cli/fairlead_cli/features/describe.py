"""`fairlead features describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.options import bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.features import FeatureSurvey

EPILOG = """\b
Examples:
  fairlead features describe
  fairlead features describe -o json | jq '.features[] | select(.canBeRaisedTo)'

`next` is the level to which a feature can be raised now, or the reason why it cannot. All brokers,
even those out of service, have to support a level before it can be raised.
"""


@click.command("describe", epilog=EPILOG)
@data_option
@bootstrap_option
@table_or_json
def command(*, data: Path, bootstrap: str | None, output: str) -> None:
    """Show the levels in force, what each broker supports, and what could be raised."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.features import survey_features
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import note, print_json, print_table

    admin = build_admin(resolve_bootstrap(bootstrap, data))
    survey = survey_features(admin)
    features = [build_feature(admin, survey, name) for name in survey.levels]
    if output == "json":
        print_json(
            {
                "epoch": survey.epoch,
                "features": features,
                "brokers": {
                    str(broker_id): {name: list(levels) for name, levels in ranges.items()}
                    for broker_id, ranges in survey.supported.items()
                },
                "unanswered": survey.unanswered,
            }
        )
        return
    print_table(
        ("feature", "level", "supported by all", "falls", "allows", "next"),
        [build_row(each) for each in features],
        right=("level",),
    )
    for each in features:
        if each["whyNot"]:
            note(f"{each['name']}: {each['whyNot']}")
    for sentence in survey.unanswered:
        note(sentence)


def build_feature(admin: AdminClient, survey: FeatureSurvey, name: str) -> dict[str, Any]:
    """Return a feature for the JSON output; the controller is asked whether it could be raised."""
    from fairlead_cli.client.features import update_levels
    from fairlead_model.features import FEATURES
    from fairlead_model.session.calls import FeatureUpgradeType

    level, highest = survey.levels[name], survey.highest_of_all(name)
    lowest = [ranges[name][0] for ranges in survey.supported.values() if name in ranges]
    is_higher = highest is not None and highest > level
    why_not = ""
    if highest is not None and is_higher:
        why_not = update_levels(
            admin, {name: highest}, FeatureUpgradeType.UPGRADE, validate_only=True
        )
    known = FEATURES.get(name)
    return {
        "name": name,
        "level": level,
        "supportedByAll": None if highest is None else [max(lowest), highest],
        "mayFall": None if known is None else known.may_fall,
        "allows": None if known is None else known.meanings.get(level),
        "canBeRaisedTo": highest if is_higher and not why_not else None,
        "nextAllows": known.meanings.get(highest or 0) if known and is_higher else None,
        "whyNot": why_not or None,
    }


def build_row(feature: dict[str, Any]) -> list[str]:
    """Return a feature as a row of the table."""
    supported = feature["supportedByAll"]
    falls = {None: "-", True: "yes", False: "no"}[feature["mayFall"]]
    raised = feature["canBeRaisedTo"]
    then = "-" if raised is None else f"{raised}: {feature['nextAllows'] or 'not known here'}"
    return [
        feature["name"],
        str(feature["level"]),
        "-" if supported is None else f"{supported[0]} to {supported[1]}",
        falls,
        feature["allows"] or "-",
        "not yet" if feature["whyNot"] else then,
    ]
