"""Stored plans, from the command that shows them until the command that executes them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.errors import CliError, InputError
from fairlead_cli.strict_json import parse_json
from fairlead_controller.decisions.balance.plan_document import BOUND_FIELDS, VERSION, plan_id

KEPT_MAX = 20


def shelf() -> Path:
    """Return the folder of plans, in the XDG state folder. CliError if there is none."""
    base = os.environ.get("XDG_STATE_HOME")
    try:
        state = Path(base) if base else Path.home() / ".local" / "state"
    except RuntimeError as error:
        # There is no HOME, and the user is not in the system's list, as in many pods.
        raise CliError(
            "there is no place for plans: this user has no home directory",
            hint="Name a folder for them:  export XDG_STATE_HOME=/tmp/state",
        ) from error
    return state / "fairlead" / "plans"


def keep_plan(document: dict[str, Any]) -> None:
    """Store a plan and remove the oldest ones. CliError if the folder is not writable."""
    folder = shelf()
    path = folder / f"{document['id']}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(document, indent=2) + "\n")
        unfinished.replace(path)
        kept = sorted(folder.glob("*.json"), key=lambda each: each.stat().st_mtime_ns)
        for old in kept[:-KEPT_MAX]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise CliError(f"cannot keep the plan in {folder}: {error.strerror}") from error


def find_plan(name: str) -> dict[str, Any]:
    """Return a plan by its id, or from a file with the output of `-o json`. InputError."""
    path = shelf() / f"{name}.json" if name.isalnum() else Path(name)
    try:
        if not path.exists():
            path = Path(name)
        document = parse_json(path.read_text())
    except OSError as error:
        raise InputError(
            f"there is no plan '{name}' here",
            hint="A plan is kept for the user and machine that made it; elsewhere name a file with "
            f"it (-o json). Make one:  fairlead rebalance{cluster_arguments()}",
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is no plan: {error}") from error
    check_plan(document, path)
    return dict(document)


def check_plan(document: Any, path: Path) -> None:
    """Raise InputError if a file is no plan, or if its content does not match its id."""
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise InputError(f"{path} is no plan of this release")
    moves = document.get("moves")
    if not isinstance(moves, list) or not all(
        isinstance(move, dict) and set(BOUND_FIELDS) <= move.keys() for move in moves
    ):
        raise InputError(f"{path} is no plan: its moves are not complete")
    if not {"clusterId", "brokers"} <= document.keys() or plan_id(document) != document.get("id"):
        raise InputError(
            f"{path} was changed after plan {document.get('id')} was made",
            hint=f"Make another:  fairlead rebalance{cluster_arguments()}",
        )
