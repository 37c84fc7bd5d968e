"""A provider's messages in, a view out. Pure: one module for each format."""
