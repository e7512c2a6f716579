"""The application: what tables mean, comparisons, embeddings, pages, the command line."""
