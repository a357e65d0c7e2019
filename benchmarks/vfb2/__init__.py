"""Experiments with VFB² in the shape of the paper's (Zhang et al. 2021, section 7), on real services."""
