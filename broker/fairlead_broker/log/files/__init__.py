"""The files of a log: their names, slices of them, small texts, and what goes later."""
