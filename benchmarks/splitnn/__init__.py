"""Split networks between services against the same network in one process."""
