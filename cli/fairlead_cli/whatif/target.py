"""The brokers of a target: ids of brokers, or a rack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.errors import InputError
from fairlead_cli.options import INT32_MAX, parse_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_controller.decisions.state import ControllerState

FORMS = "broker/ID[,ID…] or rack/NAME"


def split_target(target: str, forms: str = FORMS) -> tuple[str, str]:
    """Return kind and name of a target; InputError if it is malformed."""
    kind, separator, name = target.partition("/")
    if not separator or not name:
        raise InputError(f"'{target}' names no target", hint=f"Write {forms}.")
    return kind, name


def parse_ids(name: str) -> list[int]:
    """Return broker ids of `1,2`; InputError."""
    ids = parse_numbers(name.replace(" ", ""), INT32_MAX)
    if ids is None:
        raise InputError(f"'{name}' is no list of broker ids", hint="Write broker/1,2.")
    return sorted(ids)


def check_form(target: str) -> None:
    """Refuse targets that no cluster could have; InputError."""
    kind, name = split_target(target)
    if kind == "broker":
        parse_ids(name)
    elif kind != "rack":
        raise InputError(f"'{kind}' is no kind of target", hint=f"Write {FORMS}.")


def find_brokers(state: ControllerState, target: str) -> list[int]:
    """Return the brokers of a well-formed target; InputError if there are none."""
    kind, name = split_target(target)
    brokers = state.image.brokers
    if kind == "broker":
        ids = parse_ids(name)
        require_known(ids, brokers, state)
        return ids
    found = sorted(each for each, broker in brokers.items() if broker.rack == name)
    if not found:
        racks = sorted({broker.rack for broker in brokers.values() if broker.rack})
        known = f"There are: {', '.join(racks)}." if racks else "No broker says its rack."
        raise InputError(f"no broker is in rack '{name}'", hint=known)
    return found


def require_known(ids: Iterable[int], brokers: Iterable[int], state: ControllerState) -> None:
    """Raise InputError for an unknown broker; a broker that is down is known by its replicas."""
    known = set(brokers)
    unknown = [each for each in ids if each not in known and not any(state.image.replicas_of(each))]
    if unknown:
        names = ", ".join(map(str, unknown))
        listed = ", ".join(map(str, sorted(known)))
        raise InputError(f"there is no broker {names}", hint=f"There are: {listed}.")
