"""Embeddings of items: which texts of a value are embedded, how vectors are stored and compared.

A vector is stored as little-endian float32, with a digest of its text: a put embeds only texts that
the item did not have before.
"""

from __future__ import annotations

import hashlib
import math
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    IndexConfig,
    PutOp,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from holdfast.adapters.langgraph.memory.layout import VECTORS, damaged_entry_error
from holdfast.errors import UnsupportedValueError, short_repr

WHOLE_VALUE = "$"
FLOAT_SIZE = 4


@dataclass(frozen=True, slots=True)
class IndexedText:
    """A text of an item that is embedded."""

    path: str
    text: str

    @property
    def digest(self) -> bytes:
        """A short digest of the text."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).digest()[:16]


class TextIndex:
    """The ``index`` configuration of a store.

    Raises:
        TypeError: It is not a dict, ``embed`` is missing, or ``fields`` is not a list.
        ValueError: ``dims`` is not a positive number.

    """

    def __init__(self, config: IndexConfig) -> None:
        if not isinstance(config, Mapping) or config.get("embed") is None:
            raise TypeError(
                'index must be a dict such as {"dims": 1536, "embed": embeddings}, '
                f"got {short_repr(config)}"
            )
        self.dims = config.get("dims")
        if self.dims is not None and (not isinstance(self.dims, int) or self.dims < 1):
            raise ValueError(f"dims of the index must be a positive int, got {self.dims!r}")
        self.embeddings: Embeddings = ensure_embeddings(config["embed"])
        fields: object = config.get("fields") or [WHOLE_VALUE]
        if not isinstance(fields, list | tuple):
            raise TypeError(f"fields of the index must be a list of paths, got {fields!r}")
        self.fields = list(fields)

    def list_texts(self, op: PutOp) -> list[IndexedText]:
        """Return the texts of an item that are embedded.

        Raises:
            UnsupportedValueError: What is embedded is more than JSON.

        """
        if op.value is None or op.index is False:
            return []
        found = []
        for path in self.fields if op.index is None else op.index:
            tokens = path if path == WHOLE_VALUE else tokenize_path(path)
            try:
                texts = get_text_at_path(op.value, tokens)
            except (TypeError, ValueError, RecursionError) as error:
                raise UnsupportedValueError(
                    f"{path!r} of {op.key!r} cannot be embedded: {error!s:.200}; set the fields of "
                    "the index to those that are text, or put the item with index=False"
                ) from error
            for number, text in enumerate(texts):
                found.append(IndexedText(f"{path}.{number}" if len(texts) > 1 else path, text))
        return found

    def pack(self, vector: Sequence[float]) -> bytes:
        """Return a vector as stored.

        Raises:
            ValueError: It does not have the dimensions of the index, or a number is not finite.

        """
        if self.dims is not None and len(vector) != self.dims:
            raise ValueError(
                f"an embedding has {len(vector)} dimensions, but the index has dims={self.dims}; "
                "set dims to what the embedding function returns"
            )
        packed = array("f", vector)
        if not all(map(math.isfinite, packed)):
            raise ValueError(
                "an embedding has a number that is not finite, or too large for float32; "
                "check the embedding function"
            )
        if sys.byteorder == "big":
            packed.byteswap()
        return packed.tobytes()

    def find_vectors(self, entry: object, key: str) -> dict[bytes, bytes]:
        """Return the stored vectors of an item by the digests of their texts.

        Those of another number of dimensions are left out, so that they are computed again.

        Raises:
            IntegrityError: The entry is damaged.

        """
        size = None if self.dims is None else self.dims * FLOAT_SIZE
        return {
            each["text"]: each["vector"]
            for each in read_vectors(entry, key)
            if size is None or len(each["vector"]) == size
        }


def build_entry(texts: Sequence[IndexedText], vectors: Mapping[bytes, bytes]) -> list[Any] | None:
    """Return the entry for the vectors of an item, or None if it has no texts."""
    return [
        {"path": each.path, "text": each.digest, "vector": vectors[each.digest]} for each in texts
    ] or None


def read_vectors(entry: object, key: str) -> list[dict[str, Any]]:
    """Return the parts of an entry after validating it.

    Raises:
        IntegrityError: The entry is damaged.

    """
    if entry is None:
        return []
    if not isinstance(entry, list) or not all(is_vector_part(each) for each in entry):
        raise damaged_entry_error(VECTORS, key, entry)
    return entry


def is_vector_part(part: object) -> bool:
    """Tell whether a part of an entry holds a vector and the digest of its text."""
    return (
        isinstance(part, dict)
        and isinstance(part.get("text"), bytes)
        and isinstance(part.get("vector"), bytes)
        and len(part["vector"]) % FLOAT_SIZE == 0
    )


# ------------------------------------------------------------------------------------ similarity


def score_vectors(query: Sequence[float], vectors: Sequence[bytes]) -> list[float]:
    """Return the cosine similarity of a query with each of some stored vectors of its length."""
    if not vectors:
        return []
    return (score_with_numpy() or score_plainly)(query, vectors)


def score_plainly(query: Sequence[float], vectors: Sequence[bytes]) -> list[float]:
    """Compute similarities without numpy."""
    own = list(map(float, query))
    own_norm = math.sqrt(sum(map(mul, own, own)))
    scores = []
    for data in vectors:
        vector = array("f", data)
        if sys.byteorder == "big":
            vector.byteswap()
        norm = own_norm * math.sqrt(sum(map(mul, vector, vector)))
        scores.append(sum(map(mul, own, vector)) / norm if norm else 0.0)
    return scores


def score_with_numpy() -> Callable[[Sequence[float], Sequence[bytes]], list[float]] | None:
    """Return a function that computes similarities with numpy, or None if it is not installed."""
    try:
        import numpy as np  # noqa: PLC0415 - optional
    except ImportError:
        return None

    def score(query: Sequence[float], vectors: Sequence[bytes]) -> list[float]:
        own = np.asarray(query, dtype=np.float64)
        matrix = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), len(own))
        # Sums in float64, without a copy of the matrix.
        squares = np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)
        norms = np.sqrt(squares) * np.linalg.norm(own)
        products = np.einsum("ij,j->i", matrix, own, dtype=np.float64)
        scores = np.divide(products, norms, out=np.zeros_like(products), where=norms != 0)
        found: list[float] = scores.tolist()
        return found

    return score
