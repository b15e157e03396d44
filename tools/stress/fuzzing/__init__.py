"""Inputs of `tools/stress/fuzz.py` for the readers of the program, one file for each kind."""
