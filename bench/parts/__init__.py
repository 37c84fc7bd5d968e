"""The parts of the yardstick, one for each kind of operation."""
