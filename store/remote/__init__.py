"""Stores that lie on a server: object stores and HDFS, read by ranges through fsspec as if they lay on this machine."""
