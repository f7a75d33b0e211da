"""Tests of network/: by bytes, by requests without a socket, and over real ones."""
