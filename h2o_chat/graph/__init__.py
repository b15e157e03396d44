"""The decode step on a GPU: one captured graph of Triton kernels per token."""
