"""Short forms of AlterConfigs, for tests of the controller's decisions."""

from fairlead_controller.decisions.events import AlterConfigs
from fairlead_model.session.calls import (
    AlterableResource,
    AlterConfigsCall,
    AlterOperation,
    ConfigAlteration,
)

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = AlterOperation


def resource(kind: int, name: str, *alterations: tuple[str, int, str | None]) -> AlterableResource:
    """Return a resource with alterations of its configs."""
    return AlterableResource(
        resource_type=kind,
        name=name,
        alterations=[
            ConfigAlteration(name=config, operation=operation, value=value)
            for config, operation, value in alterations
        ],
    )


def alter(
    *resources: AlterableResource, incremental: bool = True, validate_only: bool = False
) -> AlterConfigs:
    """Return the event."""
    return AlterConfigs(
        AlterConfigsCall(
            resources=list(resources), validate_only=validate_only, incremental=incremental
        )
    )
