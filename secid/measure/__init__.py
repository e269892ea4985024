"""Tensors to numbers: gates, information matrices, uncertainty. No input or output here (METHOD 2 to 10)."""
