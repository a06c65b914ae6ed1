"""StreamJobs: one driver pod a job, started, watched, stopped and started again."""
