"""The roles of people: what each may do, by what Kubernetes adds to its own roles."""

from fairlead_operator.resources.permissions import READ, build_user_roles


def test_who_may_change_something_may_read_it_first() -> None:
    """`kubectl scale --current-replicas` reads the scale of a pool before it changes it."""
    roles = {each["metadata"]["name"]: each["rules"] for each in build_user_roles()}
    changed = {
        resource
        for name in ("fairlead-edit", "fairlead-admin")
        for rule in roles[name]
        for resource in rule["resources"]
    }
    # Kubernetes' roles edit and admin include view.
    (view,) = roles["fairlead-view"]
    assert view["verbs"] == list(READ)
    assert changed <= set(view["resources"])
