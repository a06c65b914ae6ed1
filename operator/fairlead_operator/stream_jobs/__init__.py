"""StreamJobs: one driver pod a job, started, watched, ended and started again."""
