"""Tests of the compiled layer: both forms say the same, and what the formats say."""
