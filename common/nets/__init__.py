"""Networks and their training: the only place that imports torch, which is an extra."""
