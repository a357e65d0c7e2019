"""Whole jobs between three services, by rows, columns, key and kind of rounds."""
