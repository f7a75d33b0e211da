"""Tests with the real RocketMQ: both directions between its stores and ours."""
