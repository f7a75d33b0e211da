"""End of the valid log, its damage, and the queue units and index entries it implies."""
