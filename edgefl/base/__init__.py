"""The words that everything else is written in: vectors, seeds, errors, facts."""
