"""Recovery: decision, plan, execution."""
