"""The looks at the commitlog: its files, frames and damage."""
