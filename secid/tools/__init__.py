"""Commands beside score, check and audit, one folder each, without which the rest of the package works."""
