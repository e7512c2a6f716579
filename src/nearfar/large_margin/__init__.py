"""The triplet engine: targets, impostors, the large-margin loss and its rules."""
