"""TLS of brokers and controllers: settings, certificates, names of peers, streams."""
