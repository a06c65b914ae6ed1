"""Logins, access rules and SCRAM credentials."""
