"""What runs on the premises of an active party: it has labels, drives jobs, and holds no private key."""
