"""Reports: pages for a browser about a checkpoint, a sink, or all checkpoints below a directory.

A page is one HTML file without scripts, and loads nothing. It is made of tables that others have read, so nothing here
needs Spark or matplotlib. ``advice`` and ``sink_advice`` decide what a page tells people to do.
"""
