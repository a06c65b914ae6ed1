"""Topics made, grown, configured and deleted, by request or by a Topic resource. Pure."""
