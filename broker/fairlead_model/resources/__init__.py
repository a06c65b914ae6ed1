"""What manifests say: the specs that operator, laptop and command share. Pure."""
