"""`recover --bridge`: fillers in the place of damage, so that all behind it lives."""
