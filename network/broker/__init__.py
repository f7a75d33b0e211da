"""A broker over one store, as requests and answers without a socket."""
