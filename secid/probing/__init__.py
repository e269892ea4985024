"""Short trainings of the encoder, one a source, and what they establish: folds → batches → trainings → verdict.

`task` makes the rows, folds and candidates that all sources share; `learner` trains; `training` is one run; `run` does
all of them, each once; `judge` says which differences are real. Source: METHOD 13.
"""
