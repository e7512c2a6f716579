"""What a file's columns mean: target, vectors, identifiers, groups, traps."""
