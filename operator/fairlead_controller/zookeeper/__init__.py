"""The controller process on plain hosts, which uses ZooKeeper."""
