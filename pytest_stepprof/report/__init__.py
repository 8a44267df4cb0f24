"""Floor 3: from a comparison to a document, from a document to text. Returns text, never prints."""
