"""Write rows of sources to files in a trainer's schema. Until then, rows are kept on disk."""
