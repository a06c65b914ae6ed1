"""Which settings of a pool's brokers change while they run, and which restart them. Pure.

A *live* setting is a dynamic config (`ConfigKey.is_dynamic`) in `spec.config` of the LogCluster
that no BrokerPool names. The controller distributes it to all brokers at once, where it overrides
their files. It would also override a pool's own value, so settings that a pool names stay in the
files and restart brokers. The files have the live settings, too: a broker that starts has the
present values at once.

server.properties has three parts. The hash on the pods covers only the first part, so that a change
of the others restarts no broker:

1. settings whose change restarts brokers,
2. live settings, which the controller distributes,
3. settings that depend on the number of brokers.

A setting that is removed from the LogCluster is still in the files that running brokers have read.
Until they restart for another reason, it is live with its default. A setting without a default
(because another setting determines it) restarts them.

The ConfigMap carries the hash that its StatefulSet shall have. It does not matter in which part a
setting was when brokers started, as long as it is live now: an operator that makes more settings
live restarts no broker.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_model.configs.broker_configs import BROKER_CONFIGS
from fairlead_model.security.client_texts import escape_utf8_property
from fairlead_operator.specs.names import CONFIG_HASH_ANNOTATION, PROPERTIES_KEY
from fairlead_operator.specs.views import ClusterView

LIVE: Final = "# The controller tells brokers of a change while they run.\n"
SIZED: Final = "# From the number of brokers; a change takes effect with the next restart.\n"


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The settings of a pool's brokers."""

    restarting: Mapping[str, str]
    live: Mapping[str, str]
    """With the defaults of settings that are no longer live, and that running brokers may have."""
    config_hash: str
    """A different hash restarts the brokers."""


def find_live(cluster: ClusterView, named_by_pools: Collection[str]) -> dict[str, str]:
    """Return the settings of a LogCluster that change while brokers run."""
    return {
        name: value
        for name, value in sorted(cluster.spec.config.items())
        if value is not None and _is_dynamic(name) and name not in named_by_pools
    }


def names_in_pools(pools: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the settings that BrokerPools name, including invalid and terminating pools."""
    configs = ((each.get("spec") or {}).get("config") or {} for each in pools)
    return frozenset(
        name for config in configs for name, value in config.items() if value is not None
    )


def decide_settings(
    properties: Mapping[str, str],
    live: Mapping[str, str],
    config_map: Mapping[str, Any] | None,
) -> PoolSettings:
    """Divide a pool's settings; `config_map` is the live ConfigMap."""
    restarting = {name: value for name, value in properties.items() if name not in live}
    fresh = _hash(render_properties(restarting))
    if config_map is None:
        return PoolSettings(restarting, live, fresh)
    text, told = read_parts(config_map)
    annotations = config_map["metadata"].get("annotations") or {}
    # Earlier operators kept all settings in one part, and its hash only on the pods.
    held_hash = annotations.get(CONFIG_HASH_ANNOTATION) or _hash(text)
    held = {name: value for name, value in _read(text).items() if name not in live}
    defaults = {name: _default(name) for name in _read(told) if name not in live}
    kept = {name: value for name, value in defaults.items() if value is not None}
    written = {name: _on_one_line(value) for name, value in restarting.items()}
    if held == written and len(kept) == len(defaults):
        return PoolSettings(restarting, {**kept, **live}, held_hash)
    if fresh == held_hash:
        fresh = _hash(held_hash + fresh)
    return PoolSettings(restarting, live, fresh)


def decide_declaration(
    wanted: Mapping[str, str], declared: Mapping[str, str], *, may_unset: bool
) -> dict[str, str]:
    """Return the settings for the controller; `declared` are those it has so far.

    A setting is only unset (`may_unset`) once no broker runs with a file that has it.
    """
    return {**wanted} if may_unset else {**declared, **wanted}


def read_parts(config_map: Mapping[str, Any]) -> tuple[str, str]:
    """Return the parts of a file: the settings that restart brokers, and the live ones."""
    text = str((config_map.get("data") or {}).get(PROPERTIES_KEY, ""))
    given, _, _ = text.partition(SIZED)
    restarting, _, live = given.partition(LIVE)
    return restarting, live


def render_properties(properties: Mapping[str, str]) -> str:
    """Write settings as a file, in the order of their names."""
    return "".join(f"{name}={_on_one_line(properties[name])}\n" for name in sorted(properties))


def _on_one_line(value: str) -> str:
    """Return a value that cannot begin another setting or continue into the next one.

    Values of spec.config are refused before (`broker_setting_problem`); this is for all others.
    """
    return escape_utf8_property(" ".join(value.splitlines()))


def _read(text: str) -> dict[str, str]:
    """Return the values that `render_properties` has written, as they are written."""
    lines = (line.partition("=") for line in text.split("\n") if line)
    return {name: value for name, _, value in lines}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_dynamic(name: str) -> bool:
    key = BROKER_CONFIGS.get(name)
    return key is not None and key.is_dynamic and key.is_static


def _default(name: str) -> str | None:
    return BROKER_CONFIGS[name].default if _is_dynamic(name) else None
