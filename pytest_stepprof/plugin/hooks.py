"""What pytest calls. Nothing heavy is imported here."""
