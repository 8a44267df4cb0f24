"""Floor 2: pure functions, record or bytes in, record out. No torch, no pytest, no clock, no files."""
