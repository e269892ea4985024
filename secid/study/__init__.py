"""What is asked of the measurements: ranking, controls, ablations, mixtures."""
