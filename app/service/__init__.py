"""One journey for each thing that turnlog does. Only this room opens transactions."""
