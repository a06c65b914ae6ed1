"""The sources of the settings of a broker or of a controller.

Strongest first: `--set NAME=VALUE`, the environment (`FAIRLEAD_LOG_DIRS` for `log.dirs`), the file
(`server.properties`, `controller.properties`; `property_files` reads them), the default. An unknown
name is an error that names the most similar setting. In the environment it is only a warning,
because container platforms set variables of their own there.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from fairlead_model.configs.config_values import BROKER_CONFIGS, ConfigError, validate_broker_config

ENVIRONMENT_PREFIX: Final = "FAIRLEAD_"


def environment_name(name: str) -> str:
    """Return the variable that sets a config: `log.dirs` -> `FAIRLEAD_LOG_DIRS`."""
    return ENVIRONMENT_PREFIX + name.removeprefix("fairlead.").replace(".", "_").upper()


NOT_SETTINGS: Final = frozenset({"FAIRLEAD_SUPERVISOR_FD", "FAIRLEAD_ID_BASE"})
"""Variables that are set by process 1 of a container and by the pod, and that are no settings."""

_BY_VARIABLE: Final = {environment_name(name): name for name in BROKER_CONFIGS}


def read_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings in environment variables, and warnings about likely misspellings."""
    values: dict[str, str] = {}
    warnings = []
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS:
            continue
        if variable in _BY_VARIABLE:
            values[_BY_VARIABLE[variable]] = value
            continue
        near = get_close_matches(variable, _BY_VARIABLE, n=1, cutoff=0.85)
        if near:
            warnings.append(f"{variable} is no setting; did you mean {near[0]}?")
    return values, warnings


def read_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Return settings given as NAME=VALUE arguments."""
    values = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise ConfigError(assignment, f"{assignment!r} is not NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def merge_settings(
    *,
    file: Mapping[str, str],
    environment: Mapping[str, str],
    assignments: Mapping[str, str],
) -> dict[str, str]:
    """Return the settings in effect, every value checked; ConfigError says what is wrong."""
    merged = {**file, **environment, **assignments}
    for name, text in merged.items():
        validate_broker_config(name, text)
    return merged
