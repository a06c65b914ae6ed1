"""Decisions about who may enter and what they may do, and how much. Pure."""
