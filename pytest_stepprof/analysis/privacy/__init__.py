"""What a trace would reveal, and a copy of it that reveals nothing but its figures."""
