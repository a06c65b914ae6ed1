"""Interpreters of the transcripts in the folder above."""
