"""What the tests of all rooms share."""

pytest_plugins = ["pytester"]
