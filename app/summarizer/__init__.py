"""What condenses covered turns into a summary turn."""
