"""Settings of jobs and parties: read once from YAML, checked, then frozen."""
