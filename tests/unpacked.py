"""Unpacks the language model when it is imported: half a second that forked children then find spent."""

from secid.findings.languages import _model

_model(None)
