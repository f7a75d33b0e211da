"""Tests of the scan: batches against messages that the plain walk decoded one by one."""
