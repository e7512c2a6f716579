"""What may be compared: rows with labels, sets of vectors, embeddings of rows.

A kind of data is one file here. It takes the steps of :mod:`nearfar.app.compare.driver` its own
way; nothing else in the application asks what the data are.
"""
