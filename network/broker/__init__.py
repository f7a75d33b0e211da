"""A broker over one store, as requests and answers: no socket is needed for any of it."""
