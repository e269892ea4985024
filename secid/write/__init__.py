"""Writing rows of sources to files in the schema of a trainer, and keeping them on disk until then."""
