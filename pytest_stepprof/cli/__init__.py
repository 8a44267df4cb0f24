"""Floor 4: the ``stepprof`` command, the only place beside the plugin that prints."""
