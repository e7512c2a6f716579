"""Which kind a question is of."""

from __future__ import annotations

from nearfar.app.compare.kinds.embeddings import EmbeddingKind
from nearfar.app.compare.kinds.kind import Kind
from nearfar.app.compare.kinds.pairs import PairKind
from nearfar.app.compare.kinds.rows import RowKind
from nearfar.app.compare.kinds.sets import SetKind
from nearfar.app.compare.kinds.values import ValueKind
from nearfar.app.compare.question import Question


def kind_of(question: Question) -> Kind:
    """How to go about a question: the only place where it is asked what the data are."""
    if question.task == "regression":
        return ValueKind(question)
    if question.of_pairs:
        return PairKind(question)
    if question.noun == "set":
        return SetKind(question)
    return EmbeddingKind(question) if question.without_labels else RowKind(question)
