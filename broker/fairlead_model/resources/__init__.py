"""The specs of manifests, which the operator, `fairlead up` and the commands share. Pure."""
