"""The work on whole stores over many processes or many machines: splits, engines, jobs, SQL. Knows no terminal."""
