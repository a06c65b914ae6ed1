"""Documents of exported metadata: files, folders of backups, and both in an object store."""
