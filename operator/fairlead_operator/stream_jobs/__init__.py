"""StreamJobs: one driver pod per job, started, watched, stopped and started again."""
