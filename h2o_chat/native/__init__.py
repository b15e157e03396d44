"""The native step: weights of 4 or 8 bits, and C++ that computes tokens with them over the cache's slots."""
