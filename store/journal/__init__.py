"""The frame of every change: taken, planned as data, journalled, carried out, taken back, gone on with."""
