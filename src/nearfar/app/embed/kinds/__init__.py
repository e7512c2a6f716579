"""What may be embedded: rows of a table, sets of vectors.

A kind of data is one file here; nothing else in this room asks what the data are.
"""
