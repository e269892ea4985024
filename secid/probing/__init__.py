"""Short trainings of the encoder, one a source, and what they establish: folds → batches → trainings → verdict.

`task` makes the rows and `folds` that all sources share, `candidates` what they rank; `learner` trains; `training` is
one training with its measures; `schedule` does all of them, each once; `judge` says which differences are real; `run`
is the whole command, and `options` what it is asked for.
Source: METHOD 13.
"""
