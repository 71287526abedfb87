"""What a maintainer runs to make a release; docs/releases.md has the steps."""
