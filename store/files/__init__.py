"""Files of a store: paths, reading, the one module that writes, and queues of files of equal size."""
