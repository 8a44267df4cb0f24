"""stepprof compared with itself: known slowdowns and unchanged code, in a small repository made for it."""
