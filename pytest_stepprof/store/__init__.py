"""Floor 2: all files and all git."""
