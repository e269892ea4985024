"""What `secid check` looks for: facts of texts, flags of triplets, traces of an evaluation set."""
