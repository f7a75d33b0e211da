"""Work on whole stores in many processes or on many machines: splits, engines, views."""
