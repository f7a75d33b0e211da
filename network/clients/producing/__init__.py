"""Parts of a producer: settings, life cycle, routes, fault strategy, sends, batches."""
