"""Several algorithms on the same run: played with the same sampled devices, put into one table and one page."""
