"""Parts of a producer: settings and checks, life cycle, routes, fault strategy, requests, sends, selectors, batches."""
