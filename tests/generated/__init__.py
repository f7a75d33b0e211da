"""What `make docs` and `make messages` write: layouts, documents, texts to translate."""
