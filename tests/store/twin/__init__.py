"""Tests of rmqctl.store.twin."""
