"""Commented examples of every configuration file; `vfl init` copies them."""
