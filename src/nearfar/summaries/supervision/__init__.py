"""Index-based supervision: pairs, triplets, quadruplets and chunklets of rows."""

from nearfar.summaries.supervision.chunklets import Chunklets, as_chunklets
from nearfar.summaries.supervision.index_based import Supervision
from nearfar.summaries.supervision.pairs import Pairs
from nearfar.summaries.supervision.quadruplets import Quadruplets
from nearfar.summaries.supervision.triplets import Triplets

__all__ = ["Chunklets", "Pairs", "Quadruplets", "Supervision", "Triplets", "as_chunklets"]
