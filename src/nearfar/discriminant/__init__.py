"""Linear and kernel subspace learners for labeled data, most of them from class statistics."""
