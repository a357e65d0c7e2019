"""The command line `vfl`: one file for each group of commands."""
