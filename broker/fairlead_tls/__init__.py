"""TLS as brokers and controllers share it: settings, certificates, names of peers, streams."""
