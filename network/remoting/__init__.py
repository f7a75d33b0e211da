"""RocketMQ's remoting protocol: frames and commands as bytes (no I/O), and the server that speaks them."""
