"""What a method needs to know of its data."""
