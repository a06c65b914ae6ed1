"""A query's progress as offsets of a consumer group, and which driver may commit them."""
