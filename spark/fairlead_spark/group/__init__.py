"""A query's progress as offsets of a consumer group, and who may commit them."""
