"""The options that select the entity of a quota."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_model.security.client_quota import QuotaEntity

    Command = TypeVar("Command", bound=Callable[..., Any])

_TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""Parameters and their entity types."""


def entity_options(command: Command) -> Command:
    """Add `--user`, `--client-id` and `--ip`, each with its default."""
    for option in reversed(
        (
            click.option("--user", metavar="NAME", help="A user."),
            click.option("--default-user", is_flag=True, help="Every user without its own quotas."),
            click.option(
                "--client-id", metavar="ID", help="A client id, for all users or one user."
            ),
            click.option(
                "--default-client-id", is_flag=True, help="Every client id without its own quotas."
            ),
            click.option("--ip", metavar="ADDRESS", help="An address that connections come from."),
            click.option(
                "--default-ip", is_flag=True, help="Every address without its own quotas."
            ),
        )
    ):
        command = option(command)
    return command


def read_entity(options: dict[str, Any]) -> QuotaEntity:
    """Return the entity; UsageError if there is none, or if it cannot have quotas."""
    from fairlead_model.security.client_quota import quota_entity

    parts: list[tuple[str, str | None]] = []
    for parameter, kind in _TYPES.items():
        name, is_default = options[parameter], options[f"default_{parameter}"]
        if name is not None and is_default:
            raise click.UsageError(f"give --{kind} or --default-{kind}, not both")
        if name is not None or is_default:
            parts.append((kind, name))
    if not parts:
        raise click.UsageError("say whose: --user, --client-id, --ip, or a default of one of them")
    try:
        return quota_entity(parts)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def entity_text(entity: QuotaEntity) -> str:
    """Return the entity in words."""
    return " ".join(
        f"default {kind}" if name is None else f"{kind} {name}" for kind, name in entity
    )


def number_text(value: float) -> str:
    """Return a value in the form in which it was given."""
    return str(int(value)) if value == int(value) else str(value)
