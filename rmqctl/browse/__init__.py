"""`rmqctl browse`: a store on the whole screen, read as far as the screen shows it."""
