"""Commands that a report advises, quoted so that a shell reads them as they are meant.

A baseline may be called almost anything, and a report may come from somebody else.
"""

import shlex


def saving(baseline: str) -> str:
    """Return pytest's option that adds a session to a baseline, as a person types it."""
    return shlex.quote(f"--stepprof-save={baseline}")


def recording(baseline: str, sessions: int) -> str:
    """Return the command that adds several fresh sessions to a baseline."""
    if baseline.startswith("-"):  # it would be taken for an option, and what stands behind -- is pytest's
        return f"for n in $(seq {sessions}); do pytest --stepprof {saving(baseline)}; done"
    return shlex.join(["stepprof", "baseline", "record", baseline, "--sessions", str(sessions)])
