"""The core as an `H2OCache`: a cache and an attention function as transformers calls them."""
