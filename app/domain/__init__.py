"""The rules, as pure functions from values to values: no clock, no ids, no I/O."""
