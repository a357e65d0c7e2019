"""What users read of a run, whatever the algorithm: metrics, lift, report.html and its drawings."""
