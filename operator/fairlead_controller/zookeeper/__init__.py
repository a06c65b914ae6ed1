"""The controller process on plain hosts, which stands on ZooKeeper."""
