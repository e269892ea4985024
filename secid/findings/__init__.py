"""What is wrong with negatives: METHOD 14's findings, and what to check a source as a whole for.

Read in this order: normal_form (when two texts are the same), copies (a negative against the positives of its query),
preambles, trailing_notes, openings, languages, form and formal (how a passage is written), texts (repeats, echoes and
hubs, and all of these as one mask), rows (what needs the encoder), shares and summary (from flags to numbers and
examples), inspector (all of it for one measured source). `secid check` also shows lengths, lexical_gate and leakage.

In: pooled texts and sources. Out: `texts.text_rules`, masks per source, bit i of each for the catalogue's i-th finding:

    record                                negative            findings
    query     "where do goats live"       "Goats live here!"  false_negative: equal but for case and punctuation
    positive  "goats live here"           "n/a"               empty
                                          "N/A."              empty, repeat
                                          "cats live there"   none

`shares.ListedNegatives` makes of it: empty 2 of 4 (0.5), false_negative and repeat 1 of 4 (0.25 each).
"""
