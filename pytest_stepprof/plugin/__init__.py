"""Floor 4: pytest. Hooks, options, fixtures, the session and the bridge to pytest-benchmark."""
