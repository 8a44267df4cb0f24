"""Floor 3: two checkouts, measured by turns."""
