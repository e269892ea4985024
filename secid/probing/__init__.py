"""Short trainings of the encoder, one a source, and what they establish: folds → batches → trainings → verdict.

`task` makes the rows and `folds` that all sources share, `candidates` what they rank; `learner` trains; `training` is
one run; `runs` does all of them, each once (`kept`); `judge` says which differences are real; `run` is the whole.
Source: METHOD 13.
"""
