"""Settings and where they come from, errors and exit codes, progress, text made safe. No torch."""
