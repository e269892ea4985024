"""The rules of the catalogue of findings, on texts and on the encoder's rows."""
