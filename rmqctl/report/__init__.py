"""`rmqctl report`: the numbers of the other verbs as one page of HTML."""
