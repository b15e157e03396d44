"""What `tools/stress/fuzz.py` feeds to the readers of the program, one file for each kind of them."""
