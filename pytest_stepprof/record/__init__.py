"""Floor 1: what is stored. Frozen msgspec Structs, every field with its unit, and nothing else."""
