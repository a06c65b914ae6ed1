"""The measured peers: Fairlead, Apache Kafka and a broker that does nothing, as processes."""
