"""VFB² between processes: what every party of such a job runs, whether it dominates or not."""
