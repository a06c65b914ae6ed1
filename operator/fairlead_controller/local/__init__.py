"""A controller process for one cluster, as under `fairlead up`."""
