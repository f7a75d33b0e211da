"""Any file of a store, recognised and shown field by field."""
