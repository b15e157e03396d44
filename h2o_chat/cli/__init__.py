"""Commands. No torch before it is needed."""
