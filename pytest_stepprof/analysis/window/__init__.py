"""A trace's active steps reduced to the record of a window, and two such records side by side."""
