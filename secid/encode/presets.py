"""Short names of encoders, and the families whose repositories omit their prompts.

Source: FORMATS 2. A family counts only if neither a flag nor the repository decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

ALIASES: Mapping[str, str] = {
    "e5-small": "intfloat/e5-small",
    "e5-base": "intfloat/e5-base",
    "e5-large": "intfloat/e5-large",
    "e5-small-v2": "intfloat/e5-small-v2",
    "e5-base-v2": "intfloat/e5-base-v2",
    "e5-large-v2": "intfloat/e5-large-v2",
    "multilingual-e5-small": "intfloat/multilingual-e5-small",
    "multilingual-e5-base": "intfloat/multilingual-e5-base",
    "multilingual-e5-large": "intfloat/multilingual-e5-large",
    "distilbert": "distilbert/distilbert-base-uncased",
    "mini-gte": "prdev/mini-gte",
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "bge-small": "BAAI/bge-small-en-v1.5",
    "bge-base": "BAAI/bge-base-en-v1.5",
    "bge-large": "BAAI/bge-large-en-v1.5",
    "bge-m3": "BAAI/bge-m3",
    "gte-small": "thenlper/gte-small",
    "gte-base": "thenlper/gte-base",
    "gte-large": "thenlper/gte-large",
    "gte-modernbert": "Alibaba-NLP/gte-modernbert-base",
    "nomic": "nomic-ai/nomic-embed-text-v1.5",
    "modernbert-embed": "nomic-ai/modernbert-embed-base",
    "arctic-xs": "Snowflake/snowflake-arctic-embed-xs",
    "arctic-s": "Snowflake/snowflake-arctic-embed-s",
    "arctic-m": "Snowflake/snowflake-arctic-embed-m-v1.5",
    "arctic-l": "Snowflake/snowflake-arctic-embed-l",
    "arctic-m-v2": "Snowflake/snowflake-arctic-embed-m-v2.0",
    "arctic-l-v2": "Snowflake/snowflake-arctic-embed-l-v2.0",
    "qwen3-0.6b": "Qwen/Qwen3-Embedding-0.6B",
    "qwen3-4b": "Qwen/Qwen3-Embedding-4B",
    "qwen3-8b": "Qwen/Qwen3-Embedding-8B",
    "embeddinggemma": "google/embeddinggemma-300m",
}

REVISIONS: Mapping[str, str] = {"BAAI/bge-m3": "refs/pr/38"}
"""Of repositories whose main branch has no safetensors weights; `revision` overrides it."""


@dataclass(frozen=True)
class Family:
    """What a family of encoders needs and its repositories do not state.

    names     : pattern of the last part of the hub name, lower case, matched as a whole.
    normalize : False if the model was trained with plain dot products; None leaves it open.
    fact      : what a reader of the report should know, of the kinds of pages.encoder.FACTS.
    """

    key: str
    names: re.Pattern[str]
    query_prefix: str = ""
    passage_prefix: str = ""
    normalize: bool | None = None
    fact: str = ""


SEARCH_INSTRUCTION = "Represent this sentence for searching relevant passages: "
WEB_SEARCH_TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"

FAMILIES: tuple[Family, ...] = (
    Family("e5", re.compile(r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?"), "query: ", "passage: "),
    # The instruct models write a space after "Query:", unlike Qwen3.
    Family("e5-instruct", re.compile(r"(multilingual-e5-large|e5-mistral-7b)-instruct"), WEB_SEARCH_TASK + " "),
    Family("contriever", re.compile(r"m?contriever(-msmarco)?"), normalize=False, fact="dot_product"),
    Family("distilbert", re.compile(r"distilbert-base-(un)?cased"), fact="backbone"),
    Family("bge", re.compile(r"bge-(small|base|large)-en(-v1\.5)?"), SEARCH_INSTRUCTION),
    Family("bge-zh", re.compile(r"bge-(small|base|large)-zh(-v1\.5)?"), "为这个句子生成表示以用于检索相关文章："),
    Family("bge-m3", re.compile(r"bge-m3"), fact="dense_head"),
    Family("gte", re.compile(r"gte-(small|base|large)|gte-modernbert-base|mini-gte")),  # trained without prefixes
    Family("sbert", re.compile(r"(all|multi-qa|msmarco|paraphrase)-.*(minilm|mpnet|distil|bert).*")),  # likewise
    Family(
        "nomic",
        re.compile(r"nomic-embed-text-v1(\.5)?|modernbert-embed-(base|large)"),
        "search_query: ",
        "search_document: ",
    ),
    Family("arctic", re.compile(r"snowflake-arctic-embed-(xs|s|m|l|m-long)(-v1\.5)?"), SEARCH_INSTRUCTION),
    Family("arctic-v2", re.compile(r"snowflake-arctic-embed-(m|l)-v2\.0"), "query: "),
    Family("qwen3", re.compile(r"qwen3-embedding-.+"), WEB_SEARCH_TASK),
    Family(
        "embeddinggemma",
        re.compile(r"embeddinggemma-300m.*"),
        "task: search result | query: ",
        "title: none | text: ",
    ),
)


def family_of(name: str) -> Family | None:
    """The family of a hub name, folder name or `_name_or_path`; None if it is unknown."""
    last = name.rstrip("/").replace("\\", "/").rsplit("/", 1)[-1].lower()
    return next((family for family in FAMILIES if family.names.fullmatch(last)), None)
