"""Encrypted regression as the active party conducts it: rounds, training, what a job leaves."""
