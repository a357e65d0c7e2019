"""All that runs on the premises of a passive party: it has features, and neither labels nor a private key."""
