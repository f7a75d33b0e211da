"""Tests of the project; they mirror its floors and stand on the golden stores in golden/."""
