"""What makes a release: `make release` runs it, and nothing of it is in the wheel."""
