"""Users, access rules and quotas: what they are, and what follows from them. Pure."""
