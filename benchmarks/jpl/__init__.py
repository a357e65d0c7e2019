"""Is A worth it? JPL beside its baselines on real sets, over seeds, overlaps and ablations."""
