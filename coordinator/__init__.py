"""What the key holder runs, and the only place where a private key exists."""
