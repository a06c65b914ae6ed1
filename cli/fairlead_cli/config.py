"""`fairlead config list`: every setting with type, default and meaning, from the one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError
from fairlead_cli.options import output_option
from fairlead_cli.verb_group import VerbGroup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_model.configs.config_values import ConfigKey

EPILOG = """\b
Examples:
  fairlead config list
  fairlead config list retention
  fairlead config list --scope topic -o json
"""


@click.group(cls=VerbGroup, epilog=EPILOG)
def config() -> None:
    """Explain broker and topic settings."""


@config.command("list", epilog=EPILOG)
@click.argument("word", required=False)
@click.option(
    "--scope",
    type=click.Choice(["all", "broker", "topic"]),
    default="all",
    show_default=True,
    help="Broker settings (`up --set`, server.properties) or topic settings (`topic alter`).",
)
@output_option("table", "json", "markdown")
def list_configs(word: str | None, scope: str, output: str) -> None:
    """List settings whose name or meaning contains WORD: type, default, limits, meaning."""
    from fairlead_cli.output import print_json
    from fairlead_model.configs.config_values import BROKER_CONFIGS, TOPIC_CONFIGS

    tables = {"broker": BROKER_CONFIGS, "topic": TOPIC_CONFIGS}
    rows = [
        row
        for name, table in tables.items()
        if scope in ("all", name)
        for row in describe_keys(name, table.values())
        if word is None or word.lower() in f"{row['name']} {row['doc']}".lower()
    ]
    if not rows:
        if output == "json":
            print_json(rows)
        names = (name for table in tables.values() for name in table)
        raise build_unknown_word_error(str(word), names)
    if output == "json":
        print_json(rows)
    elif output == "markdown":
        click.echo(format_page(rows), nl=False)
    else:
        print_rows(rows)


def build_unknown_word_error(word: str, names: Iterable[str]) -> CliError:
    """Return an error that names the most similar setting."""
    from difflib import get_close_matches

    close = get_close_matches(word.lower(), list(names), n=1)
    nearest = f"Did you mean '{close[0]}'? " if close else ""
    return CliError(
        f"no setting has '{word}' in its name or meaning",
        hint=f"{nearest}See all of them:  fairlead config list",
    )


def describe_keys(scope: str, keys: Iterable[ConfigKey]) -> list[dict[str, Any]]:
    """Return the rows of the JSON output."""
    return [
        {
            "name": key.name,
            "scope": scope,
            "type": key.type.name.lower(),
            "default": key.default,
            "allowed": describe_limits(key),
            "dynamic": scope == "topic" or key.is_dynamic,
            "doc": key.doc,
            "synonyms": [synonym.name for synonym in key.synonyms],
        }
        for key in keys
    ]


def describe_limits(key: ConfigKey) -> str | None:
    """Return `0 to 10`, `at least 1` or `a, b`; None if the type has no limits here."""
    if key.choices:
        return ", ".join(key.choices)
    match (key.minimum, key.maximum):
        case (None, None):
            return None
        case (minimum, None):
            return f"at least {minimum}"
        case (None, maximum):
            return f"at most {maximum}"
        case (minimum, maximum):
            return f"{minimum} to {maximum}"


PAGE_HEAD = """# Settings

Generated from the table that brokers and controller use; do not edit. To renew it:

    fairlead config list -o markdown > docs/settings.md

Names, units and defaults are Kafka's wherever Kafka has the setting. How to set one is in
[operations.md](operations.md#settings).
"""

PAGE_COLUMNS = 118

SCOPES = {
    "broker": (
        "Broker settings",
        "For `fairlead up --set NAME=VALUE`, a `server.properties` file or the environment. "
        "Those marked *live* may also be altered while brokers run (`kafka-configs`).",
    ),
    "topic": (
        "Topic settings",
        "For `fairlead topic create|alter --config NAME=VALUE` and `spec.config` of a Topic "
        "manifest. A topic without one follows the broker setting that is named last.",
    ),
}


def format_page(rows: list[dict[str, Any]]) -> str:
    """Write the page docs/settings.md."""
    from textwrap import fill

    parts = [PAGE_HEAD]
    for scope, (title, introduction) in SCOPES.items():
        chosen = [row for row in rows if row["scope"] == scope]
        if not chosen:
            continue
        lines = [f"## {title}", "", fill(introduction, PAGE_COLUMNS), ""]
        lines += [format_page_item(row) for row in chosen]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def format_page_item(row: dict[str, Any]) -> str:
    """Write one setting as an item of the page's list."""
    from textwrap import fill

    default = row["default"]
    traits = [row["type"]]
    if default is not None:
        traits.append(f"default `{default}`" if default else "default empty")
    if row["allowed"]:
        traits.append(row["allowed"])
    text = f"`{row['name']}` ({'; '.join(traits)}): {row['doc']}"
    if row["scope"] == "topic":
        text += f" Broker setting: {', '.join(f'`{name}`' for name in row['synonyms']) or 'none'}."
    elif row["dynamic"]:
        text += " *Live.*"
    return fill(
        f"* {text}",
        PAGE_COLUMNS,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print a table for each scope."""
    from rich.text import Text

    from fairlead_cli.output import print_table

    for scope, (title, _) in SCOPES.items():
        cells = [
            (
                Text(row["name"], style="bold"),
                row["type"],
                "-" if row["default"] is None else Text(row["default"] or '""'),
                Text(row["doc"]),
            )
            for row in rows
            if row["scope"] == scope
        ]
        if cells:
            print_table(("name", "type", "default", "meaning"), cells, title=title)
