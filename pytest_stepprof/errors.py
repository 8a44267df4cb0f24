"""The errors that stepprof raises: what was found, what was expected, what to do."""


class StepprofError(Exception):
    """Base of all errors of stepprof. The message is one paragraph for the person who wrote the test."""


class UsageError(StepprofError):
    """An option, a marker keyword or an argument is not what it has to be."""


class BatchError(StepprofError):
    """The batches ran out or cannot be read again."""


class StateError(StepprofError):
    """The state cannot be captured or put back."""


class OutputError(StepprofError):
    """The step's result cannot be stored or compared."""


class ProfilerError(StepprofError):
    """The profiler's window is not valid: nothing of it may be shown."""


class DeviceError(StepprofError):
    """The device asked for is not there."""


class TraceError(StepprofError):
    """A trace cannot be read."""


class StoreError(StepprofError):
    """A file of the store is damaged, too new, missing or cannot be written."""
