"""How fast, against what. Ratios of one run are what counts; the machine is shared and noisy."""
