"""Floor 3: the only room that imports torch."""
