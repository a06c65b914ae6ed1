"""LogClusters and BrokerPools: their objects, restarts, status and deletion."""
