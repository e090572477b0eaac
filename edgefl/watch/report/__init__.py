"""A run as one HTML file that needs nothing but itself: no network, no script, and no text of a device that is code."""
