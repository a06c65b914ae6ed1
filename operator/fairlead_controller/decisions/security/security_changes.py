"""Changes of credentials, access rules and quotas, by their kind."""

from fairlead_controller.decisions.events import (
    AlterClientQuotas,
    AlterCredentials,
    ApplyUserResources,
    CreateAcls,
    Decision,
    DeleteAcls,
)
from fairlead_controller.decisions.security.acl_changes import (
    decide_acl_creation,
    decide_acl_deletion,
)
from fairlead_controller.decisions.security.credential_changes import decide_credential_changes
from fairlead_controller.decisions.security.quota_changes import decide_quota_changes
from fairlead_controller.decisions.security.user_resources import decide_user_resources
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom


def decide_security_change(
    state: ControllerState,
    event: CreateAcls | DeleteAcls | AlterCredentials | AlterClientQuotas | ApplyUserResources,
    room: TableRoom | None = None,
) -> Decision:
    """Return what an event changes of rules, users and quotas."""
    match event:
        case CreateAcls():
            return decide_acl_creation(state, event, room)
        case DeleteAcls():
            return decide_acl_deletion(state, event)
        case AlterCredentials():
            return decide_credential_changes(state, event, room)
        case AlterClientQuotas():
            return decide_quota_changes(state, event, room)
        case ApplyUserResources():
            return decide_user_resources(state, event, room)
