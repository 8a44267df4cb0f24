"""pytest-stepprof: profiled performance tests for PyTorch training and inference steps."""

__version__ = "0.1.0"
