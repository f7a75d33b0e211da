"""Reading: by queue, key, offset and time; iteration, filters, follow."""
