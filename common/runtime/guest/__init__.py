"""What every party runs that takes part in a job without conducting it: opened, aligned, asked for scores."""
