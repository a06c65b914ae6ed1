"""The files of a log: their names, slices of them, small text files, and later deletions."""
