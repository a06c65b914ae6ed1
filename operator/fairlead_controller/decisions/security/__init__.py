"""Decisions about users' credentials, access rules and quotas. Pure."""
