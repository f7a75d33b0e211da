"""What operators ask for beyond settings: upkeep of files, half messages, other modes of a broker."""
