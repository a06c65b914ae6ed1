"""Who may log in to this broker, and what each client may do."""
