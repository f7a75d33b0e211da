"""All verbs under a clock that is set to other days, in other zones (`make any-day`)."""
