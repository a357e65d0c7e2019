"""What runs the floors below: configuration, state, compute, processes, and the command line."""
