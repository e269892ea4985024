"""Train the encoder briefly on each source, fold and seed, and decide which differences are established."""
