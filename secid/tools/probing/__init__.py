"""Short trainings of the encoder, one per source, fold and seed, and what they establish."""
