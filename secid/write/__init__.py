"""Rows of sources to files: in the schema of a trainer, or kept on disk between the reading and the writing."""
