"""One embedding, described for its page."""
