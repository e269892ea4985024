"""How many tokens of a text an encoder reads. Source: FORMATS 2."""

from __future__ import annotations

from pathlib import Path

from secid.encode.modules import Json, read_json
from secid.errors import EncoderError
from secid.settings import Settings

OFFSET_POSITIONS = frozenset(
    {
        *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet"),
        *("data2vec-text", "longformer", "xmod"),
    }
)
"""Model types whose first position is pad_token_id + 1, so that 514 positions hold 512 tokens."""

LEARNED_POSITIONS = OFFSET_POSITIONS | {
    *("bert", "distilbert", "electra", "albert", "ernie", "rembert", "gpt2", "megatron-bert", "convbert"),
    *("mobilebert", "squeezebert", "opt", "deberta", "deberta-v2"),
}
"""Model types with one learned vector per position: a longer text fails inside the model."""


def resolve_max_length(
    inner: Path, config: Json, sentence: Json | None, settings: Settings, rules: dict[str, str], notes: list[str]
) -> int | None:
    """Maximum input length in tokens: flag, else sentence_bert_config.json, else the tokenizer's limit.

    The order is sentence-transformers'. Lengths are bounded by the positions of the types in LEARNED_POSITIONS.
    """
    text_config = config.get("text_config") or config
    positions = text_config.get("max_position_embeddings") or text_config.get("n_positions")
    room = _position_room(text_config, positions)
    sentence_length = (sentence or {}).get("max_seq_length")
    if settings.max_length is not None:
        if room is not None and settings.max_length > room:
            raise EncoderError(
                f"--max-length {settings.max_length} exceeds the model's {room} positions",
                where=str(inner),
                remedy=f"use --max-length {room} or less",
            )
        rules["max_length"] = "flag"
        return settings.max_length
    length, rule = _tokenizer_length(inner, positions)
    if sentence_length is not None:
        if not isinstance(sentence_length, int) or sentence_length < 1:
            raise EncoderError(
                f"max_seq_length is {sentence_length!r}, expected a number of tokens",
                where=str(inner),
                remedy="--max-length overrides the file",
            )
        length, rule = sentence_length, "sentence_bert_config.json max_seq_length"
    if room is not None and (length is None or length > room):
        if length is not None:
            notes.append(f"maximum length {length} ({rule}) reduced to the model's {room} positions")
        length, rule = room, "config.json max_position_embeddings"
    rules["max_length"] = rule
    return length


def _position_room(config: Json, positions: int | None) -> int | None:
    kind = str(config.get("model_type", ""))
    if positions is None or positions < 1 or kind not in LEARNED_POSITIONS:
        return None
    if kind.startswith("deberta") and not config.get("position_biased_input", True):  # relative positions alone
        return None
    if kind not in OFFSET_POSITIONS:
        return positions
    padding = config.get("pad_token_id")
    return positions - (1 if padding is None else int(padding)) - 1  # 1 is the default of every type in the set


def _tokenizer_length(inner: Path, positions: int | None) -> tuple[int | None, str]:
    limit = (read_json(inner / "tokenizer_config.json") or {}).get("model_max_length")
    # transformers writes int(1e30) if a tokenizer has no limit.
    if isinstance(limit, (int, float)) and limit < 10**9 and (positions is None or limit <= positions):
        return int(limit), "tokenizer_config.json model_max_length"
    if positions is not None and positions > 0:
        return positions, "config.json max_position_embeddings"
    return None, "default"
