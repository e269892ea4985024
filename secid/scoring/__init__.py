"""The stages of `secid score`, `secid check` and `secid audit`, from files to results."""
