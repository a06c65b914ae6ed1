"""Users: from resources to rules, credentials and the Secrets that applications mount."""
