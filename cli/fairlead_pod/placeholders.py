"""Placeholders in a `server.properties` that all pods of a pool share, and their values.

`${POD_IP}`, `${HOST_IP}`, `${POD_NAME}`, `${NODE_NAME}` come from the environment. `${ORDINAL}` is
the number at the end of the pod's name, `${BROKER_ID}` is that number plus the pool's first id, and
`${BROKER_ID+N}` a sum (ports of outside listeners). IPv6 addresses get brackets, because ports
follow them. Placeholders are only for values, not for names of settings. Pure.
"""

from fairlead_model.host_address import bracketed

ID_BASE = "FAIRLEAD_ID_BASE"
_FROM_ENVIRONMENT = ("POD_IP", "HOST_IP", "POD_NAME", "NODE_NAME")
_NUMBERS = ("ORDINAL", "BROKER_ID")


class PlaceholderError(ValueError):
    """A placeholder has no value in this pod; the text names it and what is missing."""


def pod_values(environment: "dict[str, str]") -> dict[str, str]:
    """Return the value of each placeholder; leave out those that the environment lacks."""
    values = {name: environment[name] for name in _FROM_ENVIRONMENT if environment.get(name)}
    for name in ("POD_IP", "HOST_IP"):
        if name in values:
            values[name] = bracketed(values[name])
    ordinal = values.get("POD_NAME", "").rpartition("-")[2]
    if ordinal.isdecimal():
        values["ORDINAL"] = ordinal
        base = environment.get(ID_BASE, "0")
        if not base.isdecimal():
            raise PlaceholderError(f"{ID_BASE}={base} is no number")
        values["BROKER_ID"] = str(int(base) + int(ordinal))
    return values


def expand_properties(text: str, values: dict[str, str]) -> str:
    """Replace each placeholder outside comments; PlaceholderError names the line."""
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        name, separator, value = line.partition("=")
        if not separator or line.lstrip()[:1] in ("#", "!"):
            lines.append(line)
            continue
        try:
            lines.append(name + separator + _expand(value, values))
        except PlaceholderError as error:
            raise PlaceholderError(f"line {number}, {name.strip()}: {error}") from None
    return "".join(line + "\n" for line in lines)


def read_property(text: str, wanted: str) -> str:
    """Return the last value of a setting in an expanded text; empty if it has none."""
    found = ""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == wanted:
            found = value.strip()
    return found


def _expand(value: str, values: dict[str, str]) -> str:
    head, *rest = value.split("${")
    parts = [head]
    for piece in rest:
        name, brace, tail = piece.partition("}")
        if not brace:
            raise PlaceholderError(f"'${{{name[:40]}' is not closed")
        parts.append(_value(name.strip(), values) + tail)
    return "".join(parts)


def _value(expression: str, values: dict[str, str]) -> str:
    name, plus, summand = (part.strip() for part in expression.partition("+"))
    if name not in _FROM_ENVIRONMENT + _NUMBERS:
        known = ", ".join(_FROM_ENVIRONMENT + _NUMBERS)
        raise PlaceholderError(f"there is no placeholder ${{{expression[:40]}}}; there are {known}")
    if name not in values:
        needs = (
            "a POD_NAME that ends in -NUMBER" if name in _NUMBERS else f"{name} in the environment"
        )
        raise PlaceholderError(f"${{{expression}}} needs {needs}")
    if not plus:
        return values[name]
    if name not in _NUMBERS or not summand.isdecimal():
        raise PlaceholderError(f"${{{expression[:40]}}} is not a sum of a number")
    return str(int(values[name]) + int(summand))
