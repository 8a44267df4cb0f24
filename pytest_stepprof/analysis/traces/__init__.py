"""A trace file read: bytes in, columns of integers out."""
