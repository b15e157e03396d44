"""The native step: a whole token in C++ on packed weights."""
