"""All logs of one disk: found, opened, checkpointed and closed together."""
