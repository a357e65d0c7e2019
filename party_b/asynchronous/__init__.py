"""VFB² between services, as an active party runs it: its engine, the epochs, what a job leaves."""
