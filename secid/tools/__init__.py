"""Commands other than score, check and audit, one folder each. The rest of the package does not depend on them."""
