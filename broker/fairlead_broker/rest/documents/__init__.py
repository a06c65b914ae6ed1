"""JSON documents: as text, cut from a stream, their schemas, and the one that describes the API."""
