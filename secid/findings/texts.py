"""The findings that need nothing but texts, for every negative of a run at once.

Source: METHOD 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from secid.findings.copies import CopyFinder, Positives
from secid.findings.languages import language_flags
from secid.findings.normal_form import Flags, Tick, text_forms
from secid.findings.openings import opening_flags
from secid.findings.repeats import echo_flags, hub_flags, listed_before
from secid.pool import PlannedSource
from secid.pool.plan import Mask
from secid.pool.texts import TextStore
from secid.results.catalogue import BITS


def text_masks(
    queries: TextStore,
    passages: TextStore,
    sources: Sequence[PlannedSource],
    known: Positives | None = None,
    tick: Tick = lambda n: None,
) -> list[Mask]:
    """All findings of the texts of a run: a mask per source, (T,) with bit i set for the catalogue's i-th finding.

    queries, passages, sources : all that was read, before a sample or a positive policy leaves anything out.
    known : labelled positives from outside the run, such as a baseline's; they count as the run's own do.
    tick  : called with the number of texts done, in all len(queries) + len(passages).
    The order of sources, records and texts, and the size of batches, change nothing but the order of the result.
    """
    of_queries, of_passages = text_forms(queries, tick), text_forms(passages, tick)
    copies = CopyFinder(of_queries, of_passages, passages, sources, known)
    masks = []
    for source, openings, languages in zip(
        sources, opening_flags(passages, sources), language_flags(passages, sources), strict=True
    ):
        flags = {
            **copies.flags(source),
            **openings,
            **languages,
            "empty": of_passages.empty[source.negatives],
            "repeat": listed_before(source, of_passages),
            "query_echo": echo_flags(source, of_queries, of_passages),
            "hub": hub_flags(source, of_queries, of_passages),
        }
        masks.append(mask_of(flags, source.n_triplets))
    return masks


def mask_of(flags: Mapping[str, Flags], n: int) -> Mask:
    """(n,) uint32 with bit i set where flags[TEXT_FINDINGS[i]] is; a finding without flags sets none.

    Raises ValueError for a name that is no text finding.
    """
    mask = np.zeros(n, np.uint32)
    for name, values in flags.items():
        mask |= values.astype(np.uint32) << np.uint32(BITS[name])
    return mask
