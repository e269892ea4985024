"""Results to pages: JSON, terminal, Markdown, HTML. Needs no torch, no encoder and no data."""
