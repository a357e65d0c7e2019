"""Generalised linear models in the clear: objectives, reference solvers and metrics; pure numpy."""
