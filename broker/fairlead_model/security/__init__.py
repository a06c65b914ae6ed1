"""Users, access rules (ACLs) and client quotas, and how decisions follow from them. Pure."""
