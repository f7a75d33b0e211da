"""Looking for everything that is wrong with a store: findings, checkers for each kind of file, cross checks."""
