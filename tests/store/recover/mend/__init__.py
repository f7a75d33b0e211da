"""Tests of store/recover/mend."""
