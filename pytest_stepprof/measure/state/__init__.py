"""The state that a step starts from: captured once, put back in place, and what that cannot put back."""
