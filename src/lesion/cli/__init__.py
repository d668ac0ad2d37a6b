"""The `lesion` command: one file per group of commands."""
