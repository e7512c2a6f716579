"""One embedding, described for its page."""

from nearfar.app.embed.embedding import write_embedding

__all__ = ["write_embedding"]
