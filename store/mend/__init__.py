"""Planning how queues and index become what the valid commitlog implies."""
