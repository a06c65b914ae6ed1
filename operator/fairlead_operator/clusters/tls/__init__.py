"""What a cluster's listeners need for TLS: its authority, its certificates, and who trusts them."""
