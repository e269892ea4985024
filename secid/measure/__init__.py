"""Computations from tensors to numbers: gates, information matrices, uncertainty. No I/O (METHOD 2 to 10)."""
