"""How code is compiled, kept, tried and told about; the helpers that all kernels share."""
