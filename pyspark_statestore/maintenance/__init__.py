"""What is done to a checkpoint's files from outside of its query."""
