"""Unpack the language model on import. This takes half a second, which forked children then save."""

from secid.findings.languages import _model

_model(None)
