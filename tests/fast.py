"""List the files that `pytest -m fast` runs: some tests of every folder, in less than a minute on two cores.

The list has files rather than marked tests, so that the other files are not even imported. A new file under `unit/` is
fast unless SLOW names it.
"""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent

FAST = (
    "unit",
    "cli/test_flags.py",
    "cli/test_schema.py",
    "oracle/test_audit.py",
    "oracle/test_closeness.py",
    "oracle/test_hardness.py",
    "oracle/test_probe.py",
    "oracle/test_probe_losses.py",
    "oracle/test_reference.py",
    "oracle/test_separation.py",
    "oracle/test_uncertainty.py",
    "oracle/test_variants.py",
    "test_architecture.py",
    "test_packaging.py",
    "test_snapshots.py",
)
"""Files and whole folders below `tests/`."""

SLOW = {
    "imports transformers, sentence-transformers or datasets: three to six seconds, in every worker": (
        "unit/encode/test_attention.py",
        "unit/encode/test_families.py",
        "unit/encode/test_in_memory.py",
        "unit/encode/test_parity.py",
        "unit/encode/test_recipe.py",
        "unit/encode/test_reranker.py",
        "unit/encode/test_selftest.py",
        "unit/encode/test_transformer.py",
        "unit/pages/test_example.py",
        "unit/read/test_objects.py",
        "unit/scoring/test_progress.py",
        "unit/tools/probing/test_kept.py",
        "unit/tools/probing/test_learner.py",
        "unit/tools/probing/test_run.py",
        "unit/tools/probing/test_task.py",
        "unit/triplets/test_guide.py",
        "unit/write/test_training.py",
    ),
    "takes more than two seconds, and its folder has quicker ones": (
        "unit/analyses/test_agreement.py",
        "unit/analyses/test_early.py",
        "unit/analyses/test_separation.py",
        "unit/encode/test_cache.py",
        "unit/encode/test_endpoint.py",
        "unit/findings/test_lengths.py",
        "unit/findings/test_lexical_gate.py",
        "unit/findings/test_shares.py",
        "unit/findings/test_summary.py",
        "unit/findings/test_texts.py",
        "unit/measure/test_objectives.py",
        "unit/pages/test_markdown.py",
        "unit/pages/test_pages.py",
        "unit/pages/test_probe.py",
        "unit/read/test_containers.py",
        "unit/read/test_hub.py",
        "unit/read/test_memory.py",
        "unit/read/test_misread.py",
        "unit/read/test_reader.py",
        "unit/read/test_schemas.py",
        "unit/scoring/test_row_lengths.py",
        "unit/test_notebook.py",
        "unit/test_scored_inputs.py",
        "unit/tools/gating/test_guide.py",
        "unit/tools/gating/test_limits.py",
        "unit/tools/mining/test_llm.py",
        "unit/triplets/test_embedding.py",
        "unit/triplets/test_table.py",
    ),
}
"""Files that are not fast, by reason."""


def is_fast(path: Path) -> bool:
    """Return whether the file belongs to the fast tests."""
    if not path.is_relative_to(TESTS):
        return False
    name = path.relative_to(TESTS).as_posix()
    slow = any(name in names for names in SLOW.values())
    return not slow and any(name == entry or name.startswith(f"{entry}/") for entry in FAST)
