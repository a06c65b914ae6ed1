"""JSON documents: as text, cut from a stream, their schemas, and the OpenAPI document."""
