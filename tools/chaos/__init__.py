"""Whole fleets in virtual time, with everything going wrong that a seed can think of."""
