"""Tests of store/: one store on one machine."""
