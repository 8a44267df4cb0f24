"""A classifier of handwritten digits: small enough for a laptop, real enough to have something to find."""
